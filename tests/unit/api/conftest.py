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

from perdure.agent.base import (
    AgentInfo,
    BranchPoint,
    ForkedFrom,
    McpHealth,
    ServerInfo,
    Transcript,
    TurnDetail,
    WayOn,
)
from perdure.agent.people import checked_name, require_admin
from perdure.api.app import create_app
from perdure.api.auth import Access, hash_of
from perdure.api.server import server_config
from perdure.api.stream import Streams
from perdure.config import Settings
from perdure.effects import digest_of
from perdure.errors import (
    CardDecided,
    Forbidden,
    IdempotencyConflict,
    NotFound,
    TurnInProgress,
    TurnNotResumable,
    UnknownCard,
)
from perdure.events import Event, EventKind, Frame, Gone, ListsReset, Reached, Unfollowed
from perdure.forks import Branch, DatabaseSize, Forked, WorkerInfo
from perdure.store.base import Decided, Page, StoredCall
from perdure.transport.local import LocalTransport
from perdure.turns import (
    Accepted,
    AskedCall,
    Attempt,
    AuditEntry,
    Card,
    CardState,
    Change,
    Conversation,
    Failure,
    FailureCode,
    Origin,
    Outcome,
    Person,
    RequestKey,
    Role,
    Token,
    Turn,
    TurnStatus,
    Verdict,
)

TOKEN = "correct-horse-battery-staple"
PATIENCE_SECONDS = 60.0
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


USER_SECRET = "pdt_" + "u" * 43
OPERATOR_SECRET = "pdt_" + "o" * 43
DECIDER_SECRET = "pdt_" + "d" * 43


def token(name: str, role: Role) -> Token:
    return Token(name, role, AT, "admin")


def gate_card(id: str, conversation: str, owner: str, **more: Any) -> Card:
    """An approval of `restart_service(name="web")`."""
    call = AskedCall(
        "restart_service", None, {"name": "web"}, digest_of({"name": "web"}), "once", "call-1", "m1", f"{id}-key"
    )
    fields: dict[str, Any] = {
        "id": id,
        "turn": f"{conversation}-turn",
        "conversation": conversation,
        "owner": owner,
        "interrupt_id": f"gate-{id}",
        "kind": "approval",
        "request": {"perdure_gate": "approval"},
        "state": CardState.OPENED,
        "opened_at": AT,
        "call": call,
    }
    return Card(**(fields | more))


@dataclass
class FakeAgents:
    """Remembers what it was asked; decides who sees what by owner and role, as the port must."""

    transport: LocalTransport = field(default_factory=LocalTransport)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    conversations_of: dict[str, str] = field(default_factory=dict)
    """Conversation → owner."""
    cards_of: dict[str, Card] = field(default_factory=dict)
    called: list[StoredCall] = field(default_factory=list)
    """The tool calls of every turn."""

    said: dict[str, Any] | None = None
    """The input of every turn, where its thread does not hold it yet."""
    tokens_by_hash: dict[str, Token] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)
    entries: list[AuditEntry] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    state: Mapping[str, Any] | None = None
    status: TurnStatus = TurnStatus.RUNNING
    fails_with: Exception | None = None
    why_unready: str | None = None
    problems: Sequence[str] = ()
    uncovered: Sequence[str] = ()
    history: list[Mapping[str, Any]] = field(default_factory=list)
    recorded: list[Frame | Gone | Unfollowed] = field(default_factory=list)
    ends_after_recorded: bool = False
    """What `follow` replays before it goes live."""
    recorded_changes: list[Change | ListsReset | Reached] = field(default_factory=list)
    keys: dict[str, tuple[str, Accepted]] = field(default_factory=dict)
    followers_left: int = 0
    traced: Mapping[str, Any] = field(default_factory=dict)
    title: str = "A title"

    def _asked(self, verb: str, **arguments: Any) -> None:
        self.calls.append((verb, arguments))
        if self.fails_with is not None:
            raise self.fails_with

    def _own(self, person: Person, conversation: str) -> str:
        owner = self.conversations_of.get(conversation)
        if owner is None or person.scope not in {None, owner}:
            raise NotFound(conversation=conversation)
        return owner

    def _mine(self, person: Person) -> list[str]:
        return [each for each, whose in self.conversations_of.items() if person.scope in {None, whose}]

    def _conversation(self, person: Person, conversation: str) -> Conversation:
        owner = self._own(person, conversation)
        return Conversation(conversation, owner, "agent", self.title, len(self.messages), AT, AT, self.status)

    def _turn(self, person: Person, turn: str) -> Turn:
        conversation = turn.removesuffix("-turn")
        owner = self._own(person, conversation)
        ended = AT if self.status in {TurnStatus.FAILED, TurnStatus.COMPLETED, TurnStatus.CANCELLED} else None
        failure = Failure(FailureCode.MODEL_UNAVAILABLE, "model_unreachable", "The model cannot be reached.")
        failed = failure if self.status is TurnStatus.FAILED else None
        return make_turn(turn, conversation, owner, self.status, ended_at=ended, failure=failed, input=self.said)

    async def forget(self, person: Person, agent: str) -> None:
        self._asked("forget", person=person, agent=agent)

    def agents(self) -> Sequence[AgentInfo]:
        return [AgentInfo("agent", "message", "demo", True, self.problems, self.uncovered)]

    async def start(self, person: Person, **asked: Any) -> Accepted:
        self._asked("start", person=person, **asked)
        key = asked["request_key"]
        if key is not None and key.key in self.keys:
            digest, accepted = self.keys[key.key]
            if digest != key.digest:
                raise IdempotencyConflict
            return replace(accepted, repeated=True)
        conversation = asked["conversation"] or f"c{len(self.conversations_of) + 1}"
        if asked["conversation"]:
            self._own(person, conversation)
            if asked["when_busy"] == "reject":
                raise TurnInProgress(
                    conversation=conversation, turn=f"{conversation}-turn", details={"pending": list(self.cards_of)}
                )
        self.conversations_of[conversation] = person.owner
        status = TurnStatus.WAITING if asked["conversation"] else TurnStatus.QUEUED
        accepted = Accepted(conversation, f"{conversation}-turn", status)
        if key:
            self.keys[key.key] = (key.digest, accepted)
        return accepted

    async def resume(self, person: Person, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        self._asked("resume", person=person, conversation=conversation, request_key=request_key)
        self._own(person, conversation)
        if self.status is not TurnStatus.FAILED:
            raise TurnNotResumable("The last turn is running.", conversation=conversation)
        return Accepted(conversation, f"{conversation}-turn", TurnStatus.QUEUED)

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None = None
    ) -> Accepted:
        self._asked("answer", person=person, conversation=conversation, answers=answers, request_key=request_key)
        self._own(person, conversation)
        return Accepted(conversation, f"{conversation}-turn", TurnStatus.QUEUED)

    async def approvals(
        self, person: Person, *, limit: int, cursor: str | None, conversation: str | None = None
    ) -> Page[Card]:
        self._asked("approvals", person=person, limit=limit, cursor=cursor, conversation=conversation)
        pending = [card for card in self._pending(person) if conversation in {None, card.conversation}]
        start = int(cursor or 0)
        following = str(start + limit) if start + limit < len(pending) else None
        return Page(pending[start : start + limit], following)

    def _pending(self, person: Person) -> list[Card]:
        return [card for card in self.cards_of.values() if card.state == "opened" and self._sees(person, card)]

    def _sees(self, person: Person, card: Card) -> bool:
        return person.scope in {None, card.owner} or person.name in card.deciders

    async def card(self, person: Person, card: str) -> Card:
        self._asked("card", person=person, card=card)
        found = self.cards_of.get(card)
        if found is None or not self._sees(person, found):
            raise UnknownCard(details={"pending": [each.id for each in self._pending(person)]})
        return found

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        self._asked("decide", person=person, card=card, verdict=verdict)
        found = await self.card(person, card)
        if found.deciders and person.name not in found.deciders:
            raise Forbidden
        if found.verdict is not None:
            raise CardDecided(
                details={
                    "decision": found.verdict.decision,
                    "decided_by": found.verdict.by,
                    "decided_at": found.verdict.at,
                    "pending": [each.id for each in self._pending(person)],
                }
            )
        said = replace(verdict, by=person.name, at=AT)
        self.cards_of[card] = replace(found, state=CardState.DECIDED, verdict=said)
        others = [each for each in self._pending(person) if each.turn == found.turn]
        return Decided(self.cards_of[card], TurnStatus.PARKED if others else TurnStatus.QUEUED)

    async def cancel(self, person: Person, turn: str) -> Turn:
        self._asked("cancel", person=person, turn=turn)
        return replace(self._turn(person, turn), cancel_requested_at=AT)

    async def turn(self, person: Person, turn: str) -> TurnDetail:
        self._asked("turn", person=person, turn=turn)
        found = self._turn(person, turn)
        attempt = Attempt(turn, 1, 1, "host:1:boot", AT, AT, Outcome.DIED, True, "gone")
        card = Card("k1", turn, "c", found.owner, "i1", "interrupt", {"ask": "?"}, CardState.OPENED, AT)
        return TurnDetail(found, [attempt], [card, *self.cards_of.values()], self.called, False)

    async def events(self, person: Person, turn: str, **asked: Any) -> Page[Event]:
        self._asked("events", person=person, turn=turn, **asked)
        found = self._turn(person, turn)
        return Page([Event(7, found.conversation, turn, 1, EventKind.TRACE, AT, self.traced)], "7")

    async def turns(self, person: Person, **asked: Any) -> Page[Turn]:
        self._asked("turns", person=person, **asked)
        return Page([self._turn(person, f"{conversation}-turn") for conversation in self._mine(person)], "more")

    async def conversations(self, person: Person, **asked: Any) -> Page[Conversation]:
        self._asked("conversations", person=person, **asked)
        return Page([self._conversation(person, conversation) for conversation in self._mine(person)], None)

    async def conversation(self, person: Person, conversation: str) -> Transcript:
        self._asked("conversation", person=person, conversation=conversation)
        found = self._conversation(person, conversation)
        return Transcript(found, False, self.messages, [self._turn(person, f"{conversation}-turn")], self.state)

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation:
        self._asked("rename", person=person, conversation=conversation, title=title)
        return replace(self._conversation(person, conversation), title=title)

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        self._asked("delete", person=person, conversation=conversation, cancel=cancel)
        self._own(person, conversation)
        if not cancel:
            raise TurnInProgress(conversation=conversation, turn=f"{conversation}-turn")
        del self.conversations_of[conversation]

    async def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        self._asked("export", person=person, conversation=conversation)
        self._own(person, conversation)
        for checkpoint in self.history:
            yield checkpoint

    async def turn_counts(self, person: Person, *, agent: str | None) -> Mapping[TurnStatus, int]:
        self._asked("turn_counts", person=person, agent=agent)
        return dict.fromkeys(TurnStatus, 0) | {TurnStatus.RUNNING: len(self._mine(person))}

    async def fork(self, person: Person, conversation: str, **asked: Any) -> ForkedFrom:
        self._asked("fork", person=person, conversation=conversation, **asked)
        self._own(person, conversation)
        turn = "fork-turn" if asked["text"] is not None else None
        origin = Origin(conversation, "turn-0", asked["checkpoint"])
        return ForkedFrom(Forked("fork", turn, TurnStatus.QUEUED if turn else None), origin)

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]:
        self._asked("branches", person=person, conversation=conversation)
        self._own(person, conversation)
        mine = Branch(conversation, self.title, self.status, AT, "turn-1", True)
        other = Branch("fork", "A fork", None, AT, None, False)
        return [BranchPoint("c-1", "msg-turn-1", [WayOn(mine, "msg-turn-1"), WayOn(other, None)])]

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        self._asked("checkpoints", person=person, conversation=conversation, limit=limit, cursor=cursor)
        self._own(person, conversation)
        return Page(self.history, "more")

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        self._asked("checkpoint", person=person, conversation=conversation, checkpoint=checkpoint)
        self._own(person, conversation)
        return {**self.history[0], "values": {"messages": []}, "truncated": False}

    async def server(self, person: Person) -> ServerInfo:
        self._asked("server", person=person)
        all_of_it = person.scope is None
        workers = [WorkerInfo("box:1:b1", "1.0", AT, 2), WorkerInfo("box.two:17:b2", "1.0", AT, 0)]
        return ServerInfo(
            draining=True,
            workers=workers,
            own="box:1:b1",
            mcp_servers=[McpHealth("agent", "files", "failing", 0, "It is gone.")],
            database=DatabaseSize("/data/perdure.db", 10, 20) if all_of_it else None,
        )

    async def follow(
        self, person: Person, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone | Unfollowed]:
        self._asked("follow", person=person, conversation=conversation, after=after, follow=follow)
        self._own(person, conversation)
        return self._frames(conversation, follow)

    async def _frames(self, conversation: str, follow: bool) -> AsyncIterator[Frame | Gone | Unfollowed]:
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

    async def changes(self, person: Person, *, after: int | None) -> AsyncIterator[Change | ListsReset | Reached]:
        self._asked("changes", person=person, after=after)
        return self._changes()

    async def _changes(self) -> AsyncIterator[Change | ListsReset | Reached]:
        with self.transport.listen("changes") as bell:
            while True:
                while self.recorded_changes:
                    yield self.recorded_changes.pop(0)
                await bell.wait()

    async def audit(self, person: Person, *, limit: int, cursor: str | None) -> Page[AuditEntry]:
        self._asked("audit", person=person, limit=limit, cursor=cursor)
        return Page(self.entries, None)

    async def create_token(self, person: Person, name: str, role: Role, secret_hash: str) -> Token:
        self._asked("create_token", person=person, name=name, role=role, secret_hash=secret_hash)
        require_admin(person)
        self.tokens_by_hash[secret_hash] = token(checked_name(name), role)
        return self.tokens_by_hash[secret_hash]

    async def revoke_token(self, person: Person, name: str) -> Token:
        self._asked("revoke_token", person=person, name=name)
        require_admin(person)
        for secret_hash, found in self.tokens_by_hash.items():
            if found.name == name:
                self.tokens_by_hash[secret_hash] = replace(found, revoked_at=AT)
                return self.tokens_by_hash[secret_hash]
        raise NotFound

    async def tokens(self, person: Person) -> Sequence[Token]:
        self._asked("tokens", person=person)
        require_admin(person)
        return list(self.tokens_by_hash.values())

    async def token_of(self, secret_hash: str) -> Token | None:
        self.looked_up.append(secret_hash)
        found = self.tokens_by_hash.get(secret_hash)
        return found if found is not None and found.revoked_at is None else None

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

    def client(self, secret: str = TOKEN, **more: Any) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {secret}"} | more.pop("headers", {})
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False, **more
        )

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
    tokens = {
        USER_SECRET: token("ann", Role.USER),
        OPERATOR_SECRET: token("olga", Role.OPERATOR),
        DECIDER_SECRET: token("dora", Role.USER),
    }
    return FakeAgents(
        conversations_of={"mine": "local", "theirs": "somebody-else", "anns": "ann"},
        tokens_by_hash={hash_of(secret): each for secret, each in tokens.items()},
    )


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

    access = Access(TOKEN, settings, token_of=agents.token_of)
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
        async with asyncio.timeout(PATIENCE_SECONDS):
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
