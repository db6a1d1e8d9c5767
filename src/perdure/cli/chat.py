"""`perdure chat`: a conversation in the terminal that survives the server's restart, and its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from perdure.cli.client import Client
from perdure.cli.flags import settings_flags
from perdure.cli.narrator import Narrator
from perdure.cli.output import AsJson, Exit, err, hint, print_json, say
from perdure.cli.session import writing
from perdure.cli.turns import json_or_text, open_questions
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
    as_json: AsJson = False,
) -> None:
    """Sends a message and shows the answer as it comes. Kill and restart the server meanwhile: it comes all the same."""
    if message is None and not sys.stdin.isatty():
        message = sys.stdin.read()
    async with writing(settings) as client:
        talk = Talk(client, conversation, agent, enqueue, as_json)
        if message is not None:
            raise typer.Exit(await talk.once(message))
        if as_json:
            raise BadRequest("--json needs a message: perdure chat --json MESSAGE")
        await talk.go_on()


@dataclass(slots=True)
class Talk:
    """One terminal's part of a conversation. `cursor` is the last seq it saw."""

    client: Client
    conversation: str | None
    agent: str | None
    enqueue: bool
    as_json: bool
    cursor: int | None = None
    narrator: Narrator = field(init=False)

    def __post_init__(self) -> None:
        live = sys.stdout.isatty() and not self.as_json
        self.narrator = Narrator(sys.stdout, err, live=live)

    async def go_on(self) -> None:
        hint("Type a message; Ctrl-D leaves. The agent goes on without you.")
        while (message := await _ask("› ")) is not None:
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
        body = {"message": message, "conversation": self.conversation, "agent": self.agent}
        if self.enqueue:
            body["when_busy"] = "enqueue"
        return {name: value for name, value in body.items() if value is not None}

    async def _watch(self, turn: str) -> Event | None:
        """Follows until this turn ends (turns before it, when enqueued, are shown too); None when nobody can answer it."""
        while True:
            async with aclosing(self.client.follow(str(self.conversation), self.cursor)) as frames:
                async for frame in frames:
                    self.narrator.show(frame)
                    if not isinstance(frame, Event):
                        continue
                    self.cursor = frame.seq
                    if frame.kind is EventKind.APPROVAL and frame.payload["state"] == "opened":
                        if not sys.stdin.isatty() or self.as_json:
                            return None
                        await self._decide(frame.turn)
                    if frame.terminal and frame.turn == turn:
                        return frame

    async def _decide(self, turn: str) -> None:
        """Asks the person for every open question of the parked turn; a question somebody else answered is passed over."""
        found = await self.client.get(f"/api/turns/{turn}")
        answers = {}
        for card in open_questions(found):
            value = await _ask(f"{card['request'] if isinstance(card['request'], str) else 'answer (JSON or text)'}: ")
            if value is not None:
                answers[card["interrupt_id"]] = json_or_text(value)
        if answers:
            await self.client.post("/api/chat", {"conversation": found["conversation"], "resume": answers})

    async def _conclude(self, turn: str, ending: Event | None) -> Exit:
        status = ending.payload["status"] if ending else "parked"
        answer = self.narrator.answer(turn)
        if not answer and status == "completed":  # it ended before the stream was opened: only its end was told
            answer = await self._stored_answer()
            if self.narrator.live and answer:
                say(answer)
        if self.as_json:
            failure = dict(ending.payload) if ending and ending.kind is EventKind.CHAT_ERROR else None
            print_json(
                {"conversation": self.conversation, "turn": turn, "status": status, "answer": answer, "error": failure}
            )
        elif not self.narrator.live and answer:
            say(answer)
        if ending is None:
            hint(f"The turn is parked until somebody answers: perdure turns show {turn}", "yellow")
        return Exit.OK if status == "completed" else Exit.FAILED

    async def _stored_answer(self) -> str:
        """What the assistant said after the last message of a person."""
        messages = (await self.client.get(f"/api/conversations/{self.conversation}"))["messages"]
        start = max((place for place, each in enumerate(messages) if each["role"] == "user"), default=-1)
        said = [each["content"] for each in messages[start + 1 :] if each["role"] == "assistant" and each["content"]]
        return "\n\n".join(said)


async def _ask(prompt: str) -> str | None:
    """A line from the terminal, None at its end. A daemon thread reads, so that Ctrl-C does not wait for Enter."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def read() -> None:
        try:
            text: str | None = input(prompt)
        except EOFError:
            text = None
        loop.call_soon_threadsafe(lambda: None if line.done() else line.set_result(text))

    threading.Thread(target=read, daemon=True).start()
    return await line
