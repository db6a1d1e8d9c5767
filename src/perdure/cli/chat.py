"""`perdure chat`: a conversation in the terminal that survives the server's restart, and its own."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from perdure.cli.cards import ask_line, decide_here, open_cards, tell, tell_commands
from perdure.cli.client import Client
from perdure.cli.flags import settings_flags
from perdure.cli.narrator import Narrator
from perdure.cli.output import AsJson, Exit, err, hint, print_json, say
from perdure.cli.session import writing
from perdure.config import Settings
from perdure.errors import BadRequest
from perdure.events import Event, EventKind


@settings_flags()
async def chat(
    settings: Settings,
    *,
    message: Annotated[
        str | None,
        typer.Argument(help="One message; without it a prompt opens (or a pipe is read).", show_default=False),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Go on in this one.", show_default=False)
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Who answers.", show_default=False)] = None,
    enqueue: Annotated[bool, typer.Option("--enqueue", help="Wait behind a turn in progress, not refuse.")] = False,
    interrupt: Annotated[bool, typer.Option("--interrupt", help="Cancel a turn in progress, then run.")] = False,
    discard_pending: Annotated[
        bool, typer.Option("--discard-pending", help="With --interrupt: also one that waits for a decision.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Sends a message and shows the answer as it comes. Kill and restart the server meanwhile: it comes all the same.

    A turn that waits for a decision shows its cards with their exact arguments; in a terminal you decide right there.
    """
    busy = _when_busy(enqueue, interrupt, discard_pending)
    if message is None and not sys.stdin.isatty():
        message = sys.stdin.read()
    async with writing(settings) as client:
        talk = Talk(client, conversation, agent, busy, as_json)
        if message is not None:
            raise typer.Exit(await talk.once(message))
        if as_json:
            raise BadRequest("--json needs a message: perdure chat --json MESSAGE")
        await talk.go_on()


def _when_busy(enqueue: bool, interrupt: bool, discard_pending: bool) -> dict[str, Any]:
    """The fields of the message that say what becomes of a turn in progress."""
    if enqueue and interrupt:
        raise BadRequest("--enqueue waits behind a turn in progress, --interrupt cancels it: choose one.")
    if discard_pending and not interrupt:
        raise BadRequest("--discard-pending goes with --interrupt.")
    if interrupt:
        return {"when_busy": "interrupt", **({"discard_pending": True} if discard_pending else {})}
    return {"when_busy": "enqueue"} if enqueue else {}


@dataclass(slots=True)
class Talk:
    """One terminal's part of a conversation. `cursor` is the last seq it saw."""

    client: Client
    conversation: str | None
    agent: str | None
    when_busy: dict[str, Any]
    as_json: bool
    cursor: int | None = None
    parked: str | None = None
    """The turn that was left with an open card: this one, or one before it."""

    narrator: Narrator = field(init=False)

    def __post_init__(self) -> None:
        live = sys.stdout.isatty() and not self.as_json
        self.narrator = Narrator(sys.stdout, err, live=live)

    async def go_on(self) -> None:
        hint("Type a message; Ctrl-D leaves. The agent goes on without you.")
        while (message := await ask_line("› ")) is not None:
            if message.strip():
                await self.once(message)
        if self.conversation:
            hint(f"Come back with: perdure chat --conversation {self.conversation}")

    async def once(self, message: str) -> Exit:
        accepted = await self.client.start(self._body(message))
        if self.conversation is None:
            self.cursor = 0  # all of a new conversation, also what happened before the stream was opened
        self.conversation, turn = accepted["conversation"], accepted["turn"]
        try:
            ending = await self._watch(turn)
        except asyncio.CancelledError:
            hint(f"The turn goes on. Watch it again: perdure conversations show {self.conversation}")
            raise
        return await self._conclude(turn, ending)

    def _body(self, message: str) -> dict[str, Any]:
        body = {"message": message, "conversation": self.conversation, "agent": self.agent, **self.when_busy}
        return {name: value for name, value in body.items() if value is not None}

    async def _watch(self, turn: str) -> Event | None:
        """Follows until this turn ends (turns before it, when enqueued, are shown too); None when it is left parked."""
        while True:
            async with aclosing(self.client.follow(str(self.conversation), self.cursor)) as frames:
                async for frame in frames:
                    self.narrator.show(frame)
                    if not isinstance(frame, Event):
                        continue
                    self.cursor = frame.seq
                    asked = frame.kind is EventKind.APPROVAL and frame.payload["state"] == "opened"
                    if asked and not await self._settled(frame.turn):
                        self.parked = frame.turn
                        return None
                    if frame.terminal and frame.turn == turn:
                        return frame

    async def _settled(self, turn: str) -> bool:
        """False when something still waits for a decision, after the person here was asked."""
        if sys.stdin.isatty() and not self.as_json:
            return await decide_here(self.client, turn)
        return not open_cards(await self.client.read(f"/api/turns/{turn}"))

    async def _conclude(self, turn: str, ending: Event | None) -> Exit:
        waiting: list[dict[str, Any]] = []
        if ending is not None:
            status = ending.payload["status"]
        else:
            status = (await self.client.get(f"/api/turns/{turn}"))["status"]
            waiting = open_cards(await self.client.get(f"/api/turns/{self.parked}"))
        answer = self.narrator.answer(turn)
        if not answer and status == "completed":  # it ended before the stream was opened: only its end was told
            answer = await self._stored_answer()
            if self.narrator.live and answer:
                say(answer)
        if self.as_json:
            failure = dict(ending.payload) if ending and ending.kind is EventKind.CHAT_ERROR else None
            told = {
                "conversation": self.conversation,
                "turn": turn,
                "status": status,
                "answer": answer,
                "error": failure,
            }
            print_json({**told, "cards": waiting} if ending is None else told)
        elif not self.narrator.live and answer:
            say(answer)
        if ending is None:
            hint(f"The turn {self.parked} is parked until somebody decides: perdure turns show {self.parked}", "yellow")
            for card in waiting:
                tell(card)
                tell_commands(card)
        return Exit.OK if status == "completed" else Exit.FAILED

    async def _stored_answer(self) -> str:
        """What the assistant said after the last message of a person."""
        messages = (await self.client.get(f"/api/conversations/{self.conversation}"))["messages"]
        start = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=-1)
        said = [each["content"] for each in messages[start + 1 :] if each["role"] == "assistant" and each["content"]]
        return "\n\n".join(said)
