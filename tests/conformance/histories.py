"""Journals that live a life by chance, and a copy that follows them as disorderly as a network lets it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig

from perdure.errors import PerdureError
from perdure.events import Event, EventKind
from perdure.forks import FirstTurn, NewFork
from perdure.ledger import ToolCall
from perdure.messages import wire_message
from perdure.replication import JournalRows, Position, StoredTranscript, StreamPosition
from perdure.store.base import JournalReader, LeasedAttempt, StoredResult
from perdure.store.outbox import Outbox
from perdure.store.replica import Replica
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import ACTIVE, DECISIONS, CardState, Outcome, TurnStatus, Verdict
from tests.conformance.journal import BROKEN, OWNER, STRANGER, Journal, ask, gate, intend, work

WORDS = ("apple", "river", "stone", "cloud", "Äther", "lamp")

ALL = 1_000


def outbox(journal: Journal) -> Outbox:
    assert isinstance(journal.store, SQLiteStore)
    return journal.store


class Life:
    """One journal, one move after the other."""

    def __init__(self, journal: Journal, luck: Random) -> None:
        self.journal = journal
        self.luck = luck
        self.live: dict[str, LeasedAttempt] = {}
        self.worked: set[str] = set()
        self.transcripts: dict[str, StoredTranscript] = {}
        self.moves: Sequence[tuple[int, Callable[[], Awaitable[None]]]] = (
            (5, self.accept),
            (6, self.claim),
            (9, self.go_on),
            (5, self.decide),
            (2, self.cancel),
            (2, self.resume),
            (1, self.rename),
            (1, self.fork),
            (1, self.delete),
            (1, self.wait),
            (1, self.crash),
        )

    async def move(self) -> None:
        self.journal.clock.advance(0.001 + self.luck.random())
        weights = [weight for weight, _ in self.moves]
        ((_, deed),) = self.luck.choices(self.moves, weights)
        try:
            await deed()
        except PerdureError as refusal:
            assert refusal.code != "INTERNAL", refusal

    # -- people -------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        return " ".join(self.luck.sample(WORDS, 2))

    async def conversation(self) -> str | None:
        found = (await self.journal.store.conversations(None, limit=ALL)).items
        return self.luck.choice(found).id if found else None

    async def accept(self) -> None:
        conversation = await self.conversation() if self.luck.random() < 0.6 else None
        owner = OWNER if self.luck.random() < 0.8 else STRANGER
        when_busy = self.luck.choice(("reject", "enqueue", "enqueue", "interrupt"))
        discard = when_busy == "interrupt" and self.luck.random() < 0.5
        await self.journal.accept(
            self.text(), conversation=conversation, owner=owner, when_busy=when_busy, discard_pending=discard
        )

    async def decide(self) -> None:
        cards = (await self.journal.store.approvals(None, OWNER, limit=ALL)).items
        if cards:
            card = self.luck.choice(cards)
            said = Verdict(self.luck.choice(sorted(DECISIONS[card.kind])), by=self.luck.choice((OWNER, "clara")))
            await self.journal.store.decide(None, card.id, said)

    async def cancel(self) -> None:
        turns = [turn for turn in await every_turn(self.journal.store) if turn.ended_at is None]
        if turns:
            await self.journal.store.cancel(None, self.luck.choice(turns).id, by="clara")

    async def resume(self) -> None:
        conversation = await self.conversation()
        if conversation:
            await self.journal.store.resume(None, conversation, by="clara")

    async def rename(self) -> None:
        conversation = await self.conversation()
        if conversation:
            await self.journal.store.rename(None, conversation, self.text(), by="clara")

    async def fork(self) -> None:
        source = await self.conversation()
        if source is None:
            return
        events = await self.journal.store.events(source)
        messages = [each.payload["message"] for each in events if each.kind is EventKind.MESSAGE]
        said = [message["id"] for message in messages if message["role"] == "user"]
        if not said:
            return
        point = await self.journal.store.fork_point(None, source, message=self.luck.choice(said))
        past = [wire_message(message) for message in await self.thread(source, point.checkpoint)]
        first = FirstTurn(self.journal.name("turn"), {"message": "again"}) if self.luck.random() < 0.5 else None
        new = NewFork(self.journal.name("fork"), source, None, OWNER, OWNER, point, None, messages=past, turn=first)
        made = await self.journal.store.fork(new)
        self.transcripts[made.conversation] = StoredTranscript(0, {"messages": past, "state": {}, "resumable": False})

    async def thread(self, conversation: str, checkpoint: str | None) -> Sequence[AnyMessage]:
        if checkpoint is None:
            return ()
        config: RunnableConfig = {"configurable": {"thread_id": conversation, "checkpoint_id": checkpoint}}
        found = await self.journal.store.reader().aget_tuple(config)
        assert found is not None
        messages: Sequence[AnyMessage] = found.checkpoint["channel_values"].get("messages", [])
        return messages

    async def delete(self) -> None:
        conversation = await self.conversation()
        if conversation:
            await self.journal.store.delete(None, conversation, by="clara")

    # -- workers ------------------------------------------------------------------------------------------------------

    async def claim(self) -> None:
        attempt = await self.journal.claim(suspects=False) or await self.journal.claim(suspects=True)
        if attempt is not None:
            self.live[attempt.turn.id] = attempt

    async def go_on(self) -> None:
        if not self.live:
            return
        turn = self.luck.choice(sorted(self.live))
        attempt = self.live[turn]
        deed = self.luck.choice(("work", "work", "call", "call", "tell", "park", "finish", "finish", "release"))
        if deed == "work" and turn not in self.worked:
            self.worked.add(turn)
            await work(attempt, self.text(), self.text(), question=self.text())
        elif deed == "call":
            await self.call(attempt)
        elif deed == "tell":
            attempt.token("m", "text")
            attempt.trace("node", "node", 1, "enter")
            await attempt.count_model_call(durable=True)
        elif deed in {"park", "finish", "release"}:
            del self.live[turn]
            await self.leave(attempt, deed)

    async def call(self, attempt: LeasedAttempt) -> None:
        call = ToolCall(f"c-{self.luck.randrange(3)}", "tool", {"n": 1}, "m")
        key = await intend(attempt, call)
        if self.luck.random() < 0.6:
            attempt.record(key, StoredResult("bytes", b"result"), "success")
        await attempt.count_model_call(durable=True)

    async def leave(self, attempt: LeasedAttempt, deed: str) -> None:
        if deed == "park":
            brief = gate(
                self.journal.name("tool"), expires_seconds=30, deciders=self.luck.choice(((), ("clara", OWNER)))
            )
            own, uncertain = ask(self.journal.name("i")), gate(self.journal.name("tool"), uncertain=True)
            await attempt.park(self.luck.sample((brief, own, uncertain), self.luck.randint(1, 3)))
        elif deed == "release":
            await attempt.release(self.luck.choice((Outcome.RELEASED, Outcome.RETRIED)))
        else:
            status = self.luck.choice((TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED))
            await attempt.finish(status, BROKEN if status is TurnStatus.FAILED else None)

    # -- the world ----------------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        self.journal.clock.advance(40)
        await self.journal.store.expire(self.journal.clock.now())

    async def crash(self) -> None:
        self.live.clear()
        await self.journal.crash()
        now, manual = self.journal.clock.now(), self.luck.random() < 0.3
        for orphan in await self.journal.store.orphans(now, []):
            await self.journal.store.recover(orphan.id, orphan.epoch, now=now, manual=manual)


class Follower:
    """A copy of some journals, by name. Answers come in any order and more than once; events come in theirs, in any pieces."""

    def __init__(self, replica: Replica, lives: dict[str, Life], luck: Random) -> None:
        self.replica = replica
        self.lives = lives
        self.luck = luck
        self.answers: list[tuple[str, JournalRows]] = []
        self.heard = dict.fromkeys(lives, 0)
        self.read = 0

    async def move(self) -> None:
        agent = self.luck.choice(sorted(self.lives))
        deed = self.luck.choice((self.pull, self.hear, self.hear, self.ask, self.repeat))
        await deed(agent)

    async def pull(self, agent: str) -> bool:
        """The next page; whether there is more."""
        rows = await outbox(self.lives[agent].journal).journal_rows(
            await self.replica.position(agent), limit=self.luck.randint(1, 9)
        )
        await self.apply(agent, rows)
        return rows.more

    async def ask(self, agent: str) -> None:
        """What belongs to a turn or a conversation; it may come at once or later."""
        journal = self.lives[agent].journal
        turns = [turn.id for turn in await every_turn(journal.store)]
        conversation = await self.lives[agent].conversation()
        rows = await outbox(journal).journal_rows(
            Position(),
            turns=self.luck.sample(turns, min(len(turns), 2)),
            conversations=[conversation] if conversation else [],
        )
        if self.luck.random() < 0.5:
            self.answers.append((agent, rows))
        else:
            await self.apply(agent, rows)

    async def repeat(self, agent: str) -> None:
        if self.answers:
            await self.replica.apply(*self.luck.choice(self.answers))

    async def apply(self, agent: str, rows: JournalRows) -> None:
        """As it comes over a wire."""
        self.answers.append((agent, rows))
        assert json.loads(json.dumps(asdict(rows))) == asdict(rows)
        await self.replica.apply(agent, rows)

    async def hear(self, agent: str) -> None:
        """Some of what was told meanwhile, with some of what was told before."""
        told = self.lives[agent].journal.heard.events
        start = self.heard[agent]
        self.heard[agent] = end = min(len(told), start + self.luck.randint(1, 12))
        overlap = max(0, start - self.luck.randint(0, 4))
        await self.keep(agent, [each for each in told[overlap:end] if each.kind is not EventKind.TOKEN])

    async def keep(self, agent: str, events: Sequence[Event]) -> None:
        for event in events:
            journal = self.lives[agent].journal
            last = await self.replica.last_seq(event.conversation)
            if last is None:
                rows = await outbox(journal).journal_rows(Position(), conversations=[event.conversation])
                await self.replica.apply(agent, rows)
                last = await self.replica.last_seq(event.conversation) or 0
            between = [e for e in await journal.store.events(event.conversation, after=last) if e.seq < event.seq]
            rows = await outbox(journal).journal_rows(Position(), turns=[event.turn])
            self.read += 1
            told = [(agent, rows)] if self.luck.random() < 0.5 else []
            fresh = await self.replica.record([*between, event], stream=StreamPosition("stream", self.read), rows=told)
            assert {each.seq for each in fresh} <= {each.seq for each in between} | {event.seq}
            assert event.seq not in [each.seq for each in fresh] or event.seq > last
            assert await self.replica.record([event]) == [], "known"

    async def settle(self) -> None:
        """All that the journals hold, and what no change tells of: where turns stand that go on."""
        for agent, life in self.lives.items():
            while await self.pull(agent):
                pass
            store = life.journal.store
            for agent_, rows in self.luck.sample(self.answers, min(len(self.answers), 10)):
                await self.replica.apply(agent_, rows)
            going_on = [turn.id for turn in await every_turn(store) if turn.status in {*ACTIVE, TurnStatus.WAITING}]
            if going_on:
                await self.apply(agent, await outbox(life.journal).journal_rows(Position(), turns=going_on))
            for conversation in (await store.conversations(None, limit=ALL)).items:
                last = await self.replica.last_seq(conversation.id)
                assert last is not None
                await self.replica.record(await store.events(conversation.id, after=last))
                if conversation.id in life.transcripts:
                    await self.replica.keep_transcript(conversation.id, life.transcripts[conversation.id])


async def every_turn(store: JournalReader) -> Sequence[Any]:
    return (await store.turns(None, limit=ALL)).items


async def shown(store: JournalReader) -> dict[str, Any]:
    """All that the reading verbs show, but for the numbers that a copy gives anew."""
    told: dict[str, Any] = {}
    conversations = (await store.conversations(None, limit=ALL)).items
    turns = await every_turn(store)
    told["conversations"] = conversations
    told["turns"] = [replace(turn, accept_number=0) for turn in turns]
    told["counts"] = await store.turn_counts(None)
    told["counts of one"] = await store.turn_counts(STRANGER)
    told["audit"] = [replace(each, number=0) for each in (await store.audit(None, limit=ALL)).items]
    told["approvals"] = (await store.approvals(None, OWNER, limit=ALL)).items
    told["for clara"] = (await store.approvals("clara", "clara", limit=ALL)).items
    told["retried"] = [turn.id for turn in (await store.turns(None, limit=ALL, attempts_min=2)).items]
    for word in (*WORDS, "ap", "nothing"):
        found = await store.conversations(None, limit=ALL, text=word)
        mine = await store.conversations(OWNER, limit=ALL, text=word)
        told[f"with {word}"] = ([each.id for each in found.items], [each.id for each in mine.items])
        told[f"turns with {word}"] = [turn.id for turn in (await store.turns(None, limit=ALL, text=word)).items]
    for conversation in conversations:
        told[conversation.id] = await of_conversation(store, conversation.id)
    for turn in turns:
        told[turn.id] = await of_turn(store, turn.id)
    return told


async def of_conversation(store: JournalReader, conversation: str) -> list[Any]:
    last = await store.last_turn(None, conversation)
    events = await store.events(conversation)
    places = sorted({seq for event in events for seq in (event.seq, event.seq + 1)})
    spans = [await store.turn_at(conversation, seq) for seq in (0, *places)]
    return [
        last and last.id,
        events,
        await store.events(conversation, after=2, limit=3),
        [turn and turn.id for turn in spans],
        [turn.id for turn in (await store.turns(None, limit=2, conversation=conversation)).items],
    ]


async def of_turn(store: JournalReader, turn: str) -> list[Any]:
    found = await store.turn(None, turn)
    cards = await store.cards(None, turn)
    return [
        await store.attempts(None, turn),
        cards,
        [await store.card(None, OWNER, card.id) for card in cards if card.state is not CardState.CLOSED],
        await store.calls(None, turn),
        await store.rewound_after(turn, 0),
        [event.seq for event in await store.events(found.conversation, turn=turn)],
    ]


async def changes_are_in_order_and_say_how_it_stands(replica: JournalReader) -> None:
    changes = await replica.changes(None, 0, 100_000)
    numbers = [change.number for change in changes]
    assert numbers == sorted(set(numbers))
    assert await replica.last_change(None) == (numbers[-1] if numbers else 0)
    last = {change.turn: change.status for change in changes if change.kind == "turn"}
    assert {turn.id: str(turn.status) for turn in await every_turn(replica)}.items() <= last.items()
    conversations = {each.id for each in (await replica.conversations(None, limit=ALL)).items}
    gone = {change.conversation for change in changes if change.status == "deleted"}
    assert not gone & conversations
