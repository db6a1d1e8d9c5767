"""A real server on a real socket in front of an in-memory Agent port: the port is the seam under test here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import uvicorn
from structlog.testing import capture_logs

from perdure.agent.base import AgentInfo, Transcript, TurnDetail
from perdure.api.app import create_app
from perdure.api.auth import Access
from perdure.api.server import server_config
from perdure.api.stream import Streams
from perdure.config import Settings
from perdure.errors import IdempotencyConflict, NotFound, TurnInProgress, TurnNotResumable
from perdure.events import Event, EventKind, Frame, Gone, ListsReset
from perdure.store.base import Page
from perdure.transport.local import LocalTransport
from perdure.turns import (
    Accepted,
    Attempt,
    Card,
    CardState,
    Change,
    Conversation,
    Failure,
    FailureCode,
    Outcome,
    RequestKey,
    Turn,
    TurnStatus,
)

TOKEN = "correct-horse-battery-staple"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_turn(id: str, conversation: str, owner: str, status: TurnStatus = TurnStatus.RUNNING, **more: Any) -> Turn:
    fields: dict[str, Any] = {
        "id": id,
        "conversation": conversation,
        "agent": "agent",
        "owner": owner,
        "status": status,
        "accept_number": 1,
        "input": None,
        "epoch": 1,
        "attempts": 1,
        "attempts_without_progress": 0,
        "supersteps": 2,
        "budget_from": 0,
        "first_seq": 1,
        "committed_seq": 1,
        "cancel_requested_at": None,
        "superseded": False,
        "failure": None,
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        "accepted_at": AT,
        "ended_at": None,
    }
    return Turn(**(fields | more))


@dataclass
class FakeAgents:
    """Remembers what it was asked; everything it holds belongs to one owner."""

    transport: LocalTransport = field(default_factory=LocalTransport)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    conversations_of: dict[str, str] = field(default_factory=dict)
    """Conversation → owner."""
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    state: Mapping[str, Any] | None = None
    status: TurnStatus = TurnStatus.RUNNING
    fails_with: Exception | None = None
    why_unready: str | None = None
    problems: Sequence[str] = ()
    checkpoints: list[Mapping[str, Any]] = field(default_factory=list)
    recorded: list[Frame | Gone] = field(default_factory=list)
    ends_after_recorded: bool = False
    """What `follow` replays before it goes live."""
    recorded_changes: list[Change | ListsReset] = field(default_factory=list)
    keys: dict[str, tuple[str, Accepted]] = field(default_factory=dict)
    followers_left: int = 0
    title: str = "A title"

    def _asked(self, verb: str, **arguments: Any) -> None:
        self.calls.append((verb, arguments))
        if self.fails_with is not None:
            raise self.fails_with

    def _own(self, owner: str, conversation: str) -> None:
        if self.conversations_of.get(conversation) != owner:
            raise NotFound(conversation=conversation)

    def _conversation(self, owner: str, conversation: str) -> Conversation:
        self._own(owner, conversation)
        return Conversation(conversation, owner, "agent", self.title, len(self.messages), AT, AT, self.status)

    def _turn(self, owner: str, turn: str) -> Turn:
        conversation = turn.removesuffix("-turn")
        self._own(owner, conversation)
        ended = AT if self.status in {TurnStatus.FAILED, TurnStatus.COMPLETED, TurnStatus.CANCELLED} else None
        failure = Failure(FailureCode.MODEL_UNAVAILABLE, "model_unreachable", "The model cannot be reached.")
        failed = failure if self.status is TurnStatus.FAILED else None
        return make_turn(turn, conversation, owner, self.status, ended_at=ended, failure=failed)

    def agents(self) -> Sequence[AgentInfo]:
        return [AgentInfo("agent", "message", "demo", True, self.problems)]

    async def start(self, owner: str, **asked: Any) -> Accepted:
        self._asked("start", owner=owner, **asked)
        key = asked["request_key"]
        if key is not None and key.key in self.keys:
            digest, accepted = self.keys[key.key]
            if digest != key.digest:
                raise IdempotencyConflict
            return replace(accepted, repeated=True)
        conversation = asked["conversation"] or f"c{len(self.conversations_of) + 1}"
        if asked["conversation"]:
            self._own(owner, conversation)
            if asked["when_busy"] == "reject":
                raise TurnInProgress(conversation=conversation, turn=f"{conversation}-turn")
        self.conversations_of[conversation] = owner
        status = TurnStatus.WAITING if asked["conversation"] else TurnStatus.QUEUED
        accepted = Accepted(conversation, f"{conversation}-turn", status)
        if key:
            self.keys[key.key] = (key.digest, accepted)
        return accepted

    async def resume(self, owner: str, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        self._asked("resume", owner=owner, conversation=conversation, request_key=request_key)
        self._own(owner, conversation)
        if self.status is not TurnStatus.FAILED:
            raise TurnNotResumable("The last turn is running.", conversation=conversation)
        return Accepted(conversation, f"{conversation}-turn", TurnStatus.QUEUED)

    async def answer(
        self, owner: str, conversation: str, answers: Mapping[str, Any], request_key: RequestKey | None = None
    ) -> Accepted:
        self._asked("answer", owner=owner, conversation=conversation, answers=answers, request_key=request_key)
        self._own(owner, conversation)
        return Accepted(conversation, f"{conversation}-turn", TurnStatus.QUEUED)

    async def cancel(self, owner: str, turn: str) -> Turn:
        self._asked("cancel", owner=owner, turn=turn)
        return replace(self._turn(owner, turn), cancel_requested_at=AT)

    async def turn(self, owner: str, turn: str) -> TurnDetail:
        self._asked("turn", owner=owner, turn=turn)
        attempt = Attempt(turn, 1, 1, "host:1:boot", AT, AT, Outcome.DIED, True, "gone")
        card = Card("k1", turn, "c", owner, "i1", "interrupt", {"ask": "?"}, CardState.OPENED, AT)
        return TurnDetail(self._turn(owner, turn), [attempt], [card], False)

    async def turns(self, owner: str, **asked: Any) -> Page[Turn]:
        self._asked("turns", owner=owner, **asked)
        mine = [conversation for conversation, whose in self.conversations_of.items() if whose == owner]
        return Page([self._turn(owner, f"{conversation}-turn") for conversation in mine], "more")

    async def conversations(self, owner: str, **asked: Any) -> Page[Conversation]:
        self._asked("conversations", owner=owner, **asked)
        mine = [conversation for conversation, whose in self.conversations_of.items() if whose == owner]
        return Page([self._conversation(owner, conversation) for conversation in mine], None)

    async def conversation(self, owner: str, conversation: str) -> Transcript:
        self._asked("conversation", owner=owner, conversation=conversation)
        found = self._conversation(owner, conversation)
        return Transcript(found, False, self.messages, [self._turn(owner, f"{conversation}-turn")], self.state)

    async def rename(self, owner: str, conversation: str, title: str) -> Conversation:
        self._asked("rename", owner=owner, conversation=conversation, title=title)
        return replace(self._conversation(owner, conversation), title=title)

    async def delete(self, owner: str, conversation: str, *, cancel: bool) -> None:
        self._asked("delete", owner=owner, conversation=conversation, cancel=cancel)
        self._own(owner, conversation)
        if not cancel:
            raise TurnInProgress(conversation=conversation, turn=f"{conversation}-turn")
        del self.conversations_of[conversation]

    async def export(self, owner: str, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        self._asked("export", owner=owner, conversation=conversation)
        self._own(owner, conversation)
        for checkpoint in self.checkpoints:
            yield checkpoint

    async def follow(
        self, owner: str, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        self._asked("follow", owner=owner, conversation=conversation, after=after, follow=follow)
        self._own(owner, conversation)
        return self._frames(conversation, follow)

    async def _frames(self, conversation: str, follow: bool) -> AsyncIterator[Frame | Gone]:
        try:
            with self.transport.subscribe(conversation) as live:
                for frame in self.recorded:
                    yield frame
                while not self.ends_after_recorded:
                    for event in live.take():
                        yield event
                        if event.terminal and not follow:
                            return
                    await live.wait()
        finally:
            self.followers_left += 1

    async def changes(self, owner: str, *, after: int | None) -> AsyncIterator[Change | ListsReset]:
        self._asked("changes", owner=owner, after=after)
        return self._changes()

    async def _changes(self) -> AsyncIterator[Change | ListsReset]:
        with self.transport.listen("changes") as bell:
            while True:
                while self.recorded_changes:
                    yield self.recorded_changes.pop(0)
                await bell.wait()

    async def unready(self) -> str | None:
        return self.why_unready

    # -- what the tests use -------------------------------------------------------------------------------------------

    def asked(self, verb: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == verb]

    def publish(self, seq: int, kind: EventKind, conversation: str = "mine", **payload: Any) -> None:
        self.transport.publish(Event(seq, conversation, f"{conversation}-turn", 1, kind, AT, payload))


@dataclass
class Running:
    """One server, and the things behind it."""

    port: int
    agents: FakeAgents
    access: Access
    streams: Streams
    logged: list[MutableMapping[str, Any]]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {TOKEN}"} | more.pop("headers", {})
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=20, trust_env=False, verify=False, **more)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Closed with the server, whatever became of it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def disconnect(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def head(self, method: str, path: str, *more: str) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {TOKEN}",
            *more,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture
def agents() -> FakeAgents:
    return FakeAgents(conversations_of={"mine": "local", "theirs": "somebody-else"})


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def streams() -> Streams:
    return Streams(heartbeat_seconds=1000.0)


@pytest.fixture
async def server(
    agents: FakeAgents, settings: Settings, streams: Streams, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Running]:
    async def statistics() -> Mapping[str, float]:
        return {"turns_running": 3, "commits": 7, "database_bytes": 4096}

    access = Access(TOKEN, settings)
    bound = socket.create_server(("127.0.0.1", 0))
    app = create_app(agents, settings, access, streams=streams, statistics=statistics)
    http = uvicorn.Server(server_config(app))
    http.config.load()
    http.lifespan = http.config.lifespan_class(http.config)
    await http.startup(sockets=[bound])
    running = Running(bound.getsockname()[1], agents, access, streams, [])
    with capture_logs() as running.logged:
        yield running
        await running.disconnect()
        await streams.abort_all()
        async with asyncio.timeout(20):
            while http.server_state.connections:
                await asyncio.sleep(0.001)
        for listening in http.servers:
            listening.close()
            await listening.wait_closed()
    assert [record for record in caplog.records if record.name == "uvicorn.error" and record.levelno > 30] == []


@pytest.fixture
async def client(server: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with server.client() as client:
        yield client
