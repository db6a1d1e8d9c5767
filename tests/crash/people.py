"""People who use a server that keeps dying: they send, watch, answer, cancel and resume, and insist until they are heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any
from uuid import uuid4

from tests.crash.client import Reply, Watcher
from tests.crash.fold import FoldedView, View
from tests.crash.records import Expected, History, Sent
from tests.crash.server import Server

ENDED = {"completed", "failed", "cancelled", "interrupted"}


class Person:
    """One person with one conversation. Everything done and seen goes into the history."""

    def __init__(self, server: Server, history: History, *, insists: bool = False) -> None:
        self.server = server
        self.history = history
        self.insists = insists
        """Resumes a turn that failed for no fault of its own: kills hit it three times in a row, or an injected error."""

        self.conversation: str | None = None
        self.watcher: Watcher | None = None

    async def send(self, text: str, expected: Expected, *, agent: str = "demo", when_busy: str | None = None) -> Sent:
        """Returns once a server has said 202; a request without an answer is repeated with its key."""
        sent = Sent(uuid4().hex, text, expected, agent, exhaustible=self.insists)
        self.history.sent.append(sent)
        body = {"message": text, "agent": agent, "conversation": self.conversation, "when_busy": when_busy}
        reply = await self._post({name: value for name, value in body.items() if value}, sent.key)
        assert reply.status == 202, f"{text!r} was refused: {reply}"
        sent.conversation, sent.turn = reply.body["conversation"], reply.body["turn"]
        self._watch(reply.body["conversation"])
        return sent

    async def ended(self, sent: Sent) -> FoldedView:
        """Waits for the turn's ending on the stream, and resumes it where it was given up for want of luck."""
        assert self.watcher is not None and sent.turn is not None
        while True:
            view = await self.failed(sent)
            if not await self._goes_on(sent, view):
                return view

    async def _goes_on(self, sent: Sent, view: FoldedView) -> bool:
        """Whether the turn was given up for want of luck, and resumed."""
        code = view.ending.get("code") if view.ending else None
        if not self.insists or code is None or code in sent.expected.codes:
            return False
        return await self.resume(sent)

    async def failed(self, sent: Sent) -> FoldedView:
        """Waits for the turn's ending as it is; without one where the turn was over before the stream was opened at all: who has
        no cursor is told of a later turn alone."""
        assert self.watcher is not None and sent.turn is not None
        turn = sent.turn
        await self.watcher.until(lambda view: view.turn(turn).ending is not None or self._missed(sent, view))
        return self.watcher.view.turn(turn)

    def _missed(self, sent: Sent, view: View) -> bool:
        own = [each.turn for each in self.history.sent if each.conversation == sent.conversation]
        later = own[own.index(sent.turn) + 1 :]
        return not view.turn(sent.turn or "").seqs and any(view.turn(turn or "").seqs for turn in later)

    async def seen(self, sent: Sent, results: int) -> None:
        """Waits until so many results of the turn's tools were seen committed, or the turn has ended."""
        assert self.watcher is not None and sent.turn is not None
        turn = sent.turn
        await self.watcher.until(
            lambda view: view.turn(turn).results() >= results or view.turn(turn).ending is not None
        )

    async def resume(self, sent: Sent) -> bool:
        """Re-opens the turn; False when a message that waited behind it has taken its place, or
        when nothing of it is left to do (it was given up between its last step and its end). A repeated request may re-open
        it twice, when it had failed again in between."""
        assert self.watcher is not None and sent.turn is not None
        turn, endings = sent.turn, self._endings(sent.turn)
        reply = await self._post(
            {"resume": True, "conversation": sent.conversation}, on_try=lambda: self.history.resume_tries.update([turn])
        )
        assert reply.status in {202, 409}, f"resume was refused: {reply}"
        if reply.status == 409 and (reply.body.get("turn") != turn or await self._is_given_up(turn)):
            return False
        self.history.resumes[turn] += 1
        await self.watcher.until(lambda view: view.turn(turn).ending is None or self._endings(turn) > endings)
        return True

    async def _is_given_up(self, turn: str) -> bool:
        """A try whose answer was lost may have re-opened it: then it is under way, or has ended anew."""
        reply = await self.server.api.insist("GET", f"/api/turns/{turn}")
        return bool(reply.body["status"] == "failed" and not reply.body["resumable"])

    async def answer_cards(self, sent: Sent, answers: Mapping[str, str]) -> None:
        """Answers each card in a request of its own (`side` of the question → answer), as the cards come: a death between
        the questions of two nodes leaves one of them to be asked after the other was answered."""
        assert self.watcher is not None and sent.turn is not None
        turn, left = sent.turn, dict(answers)
        while left:
            await self.watcher.until(
                lambda view: bool(_asked(view.turn(turn), left)) or view.turn(turn).ending is not None
            )
            cards = _asked(self.watcher.view.turn(turn), left)
            if not cards:
                if await self._goes_on(sent, self.watcher.view.turn(turn)):
                    continue  # it was given up before it could ask
                return
            for card in cards:
                answer = {card["interrupt_id"]: left.pop(card["request"]["side"])}
                reply = await self._post({"conversation": sent.conversation, "resume": answer})
                assert reply.status in {202, 409}, f"the answer was refused: {reply}"
            self.history.answers[turn] += 1

    async def cancel(self, sent: Sent) -> None:
        assert sent.turn is not None
        self.history.cancels.add(sent.turn)
        reply = await self.server.api.insist("POST", f"/api/turns/{sent.turn}/cancel", {})
        assert reply.status in {200, 202}, f"the cancel was refused: {reply}"

    async def leave(self) -> None:
        if self.watcher is not None:
            await self.watcher.stop()

    def _endings(self, turn: str) -> int:
        assert self.watcher is not None
        frames = self.watcher.seen.frames
        return len(
            {frame.id for frame in frames if frame.event in {"end", "chat-error"} and frame.data["turn"] == turn}
        )

    def _watch(self, conversation: str) -> None:
        if self.watcher is None:
            self.conversation = conversation
            self.watcher = Watcher(self.server.api, conversation)
            self.history.watchers.append(self.watcher)
            self.history.seen.append(self.watcher.seen)

    async def _post(
        self, body: Mapping[str, Any], key: str | None = None, on_try: Callable[[], object] = lambda: None
    ) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.server.api.insist("POST", "/api/chat", body, headers, on_try=on_try)


def _asked(view: FoldedView, left: Mapping[str, str]) -> list[dict[str, Any]]:
    """The cards whose questions this person has not answered yet."""
    return [card for card in view.cards.values() if card["request"]["side"] in left]


class Supervisor:
    """Starts the server again whenever it has died; the n-th start is armed with the n-th of `arms`."""

    def __init__(self, server: Server, arms: list[str] | None = None, **environment: str) -> None:
        self.server = server
        self.arms = list(arms or [])
        self.environment = environment
        self._task: asyncio.Task[None] | None = None
        self._people: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Supervisor:
        self._people = asyncio.current_task()
        await self._start()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and self._task.exception() is not None:
            raise AssertionError(f"the server cannot be started: {self._task.exception()}") from error

    async def _start(self) -> None:
        """Three lives in a row that end by themselves before they are ready are not the harness's doing."""
        failed = 0
        while not await self.server.start(self.arms.pop(0) if self.arms else "", **self.environment):
            failed = failed + 1 if self.server.boots[-1].how.startswith("exited") else 0
            assert failed < 3, self.server.said()

    async def _watch(self) -> None:
        try:
            while True:
                await self.server.ended(limit_seconds=600)
                await self._start()
        except AssertionError:
            if self._people is not None:
                self._people.cancel()
            raise


async def settle(server: Server, history: History) -> None:
    """Waits until nothing is active, notes what the API shows, then stops the server as planned."""
    for sent in history.sent:
        if sent.turn is not None:
            await _at_rest(server, sent.turn)
    for conversation in dict.fromkeys(sent.conversation for sent in history.sent if sent.conversation):
        reply = await server.api.insist("GET", f"/api/conversations/{conversation}")
        assert reply.status == 200, f"{conversation}: {reply}"
        history.transcripts[conversation] = reply.body


async def _at_rest(server: Server, turn: str, limit_seconds: float = 60.0) -> None:
    async with asyncio.timeout(limit_seconds):
        while True:
            reply = await server.api.insist("GET", f"/api/turns/{turn}")
            if reply.status == 404 or reply.body["status"] in ENDED | {"parked"}:
                return
            await asyncio.sleep(0.02)


def drop_someone(history: History, luck: Random) -> int:
    """One of the connected clients loses its connection; tells how many did."""
    connected = [watcher for watcher in history.watchers if watcher.connected]
    if connected:
        luck.choice(connected).drop()
    return min(len(connected), 1)
