"""Whatever a turn went through, each tool call has exactly one result before the next model call.

Random histories of turns with parallel calls, gates, denials, edits, kills, cancels, failures and interruptions are played on the real
store, engine and agents; the scripted model refuses what real providers refuse. On the way it is counted what the tools did:
no `once` call is started twice without a person's word, and nothing gated runs that nobody approved.

`PERDURE_PROOF_EXAMPLES` asks for more histories than CI's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.errors import CardDecided, TurnNotResumable
from perdure.graph import models
from perdure.graph.load import HostedGraph, load_agent
from perdure.turns import Accepted, Card, DecisionKind, Limits, NewTurn, TurnStatus, Verdict
from tests.crash.scripted import write_script
from tests.property import stage as staging
from tests.property.stage import Stage, StagedModel
from tests.strict import Said, from_wire, problems
from tests.unit.engine.house import House, make_house

EXAMPLES = int(os.environ.get("PERDURE_PROOF_EXAMPLES", "30"))
PATIENCE_SECONDS = 60.0
OWNER = "ada"
AGENTS = ("built_in", "own", "made")
WORDS = ("read", "keyed", "checkable", "once", "gated", "broken")
RESTS = (TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.INTERRUPTED)


@dataclass(frozen=True)
class Part:
    """One message of a history: its script, and whether a turn that failed is resumed before the next message."""

    steps: list[list[tuple[str, str]]]
    resumed: bool


@dataclass(frozen=True)
class History:
    agent: str
    parts: list[Part]
    acts: dict[int, str]
    """Moment → what happens there."""

    words: list[str]
    """What people say to the cards, in turn and again from the start."""

    limits: Mapping[str, int]


@st.composite
def histories(draw: st.DrawFn) -> History:
    parts = []
    for part in range(draw(st.integers(1, 3))):
        steps = [
            [(draw(st.sampled_from(WORDS)), f"{part}-{step}-{call}") for call in range(draw(st.integers(1, 4)))]
            for step in range(draw(st.integers(0, 2)))
        ]
        parts.append(Part(steps, draw(st.booleans())))
    acts = st.sampled_from(("kill", "kill", "cancel", "fail", "interrupt"))
    limits = st.sampled_from([{}, {}, {"max_tool_calls": 3}, {"max_model_calls": 2}, {"max_identical_calls": 2}])
    return History(
        agent=draw(st.sampled_from(AGENTS)),
        parts=parts,
        acts=draw(st.dictionaries(st.integers(1, 24), acts, max_size=4)),
        words=draw(st.lists(st.sampled_from(("yes", "edit", "no", "later")), min_size=1, max_size=5)),
        limits=draw(limits),
    )


@dataclass
class Play:
    """One history on a database of its own."""

    folder: Path
    history: History
    stage: Stage
    house: House = field(init=False)
    conversation: str | None = None
    turns: list[str] = field(default_factory=list)
    decisions: int = 0
    life: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while somebody speaks to the store, and while the process dies and the next one begins."""

    async def open(self) -> None:
        self.house = await make_house(
            self.folder / "thread.db",
            await self._agent(),
            limits=Limits(max_attempts=20, redrive_delays_seconds=(0.0,)),
            sweep_seconds=0.2,
        )

    async def _agent(self) -> HostedGraph:
        shape: dict[str, Any] = {"graph": f"tests.property.stage:{self.history.agent}", **self.history.limits}
        if self.history.agent == "built_in":
            shape |= {"graph": None, "model": "staged", "tools": ("tests.property.stage:tools",)}
        chosen = AgentSettings("staged", needs_approval=("restart",), **shape)
        return await load_agent(chosen, Settings(model_retry_seconds=0.0), SystemClock())

    async def run(self) -> None:
        await self.open()
        acting = asyncio.create_task(self._act())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                for part in self.history.parts:
                    await self._part(part)
                self.stage.acts.clear()
                last = await self._send("and now?")
                assert await self._rest(last) is TurnStatus.COMPLETED, await self._why(last)
        finally:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            self.stage.done()
            await self._close()

    async def _part(self, part: Part) -> None:
        turn = await self._send(write_script(part.steps) if part.steps else "hello")
        status = await self._rest(turn)
        while status is TurnStatus.FAILED and part.resumed:
            try:
                async with self.life:
                    await self.house.store.resume(OWNER, self.conversation or "", by=OWNER)
            except TurnNotResumable:
                return
            status = await self._rest(turn)

    async def _send(self, text: str, when_busy: str = "enqueue", *, discard: bool = False) -> str:
        new = NewTurn(
            turn_id=uuid4().hex,
            owner=OWNER,
            agent="staged",
            input={"message": text},
            conversation=self.conversation,
            new_conversation_id=uuid4().hex,
            title="a history",
            when_busy=when_busy,
            discard_pending=discard,
        )
        async with self.life:
            accepted: Accepted = await self.house.store.accept(new)
        self.conversation = accepted.conversation
        self.turns.append(accepted.turn)
        return accepted.turn

    async def _rest(self, turn: str) -> TurnStatus:
        """The status in which the turn came to rest, its cards decided."""
        while True:
            async with self.life:
                found = await self.house.store.turn(OWNER, turn)
                decided = found.status is TurnStatus.PARKED and await self._decide(turn)
            if found.status in RESTS:
                return found.status
            if not decided:
                await asyncio.sleep(0.005)

    async def _decide(self, turn: str) -> bool:
        cards = [card for card in await self.house.store.cards(OWNER, turn) if card.state == "opened"]
        for card in cards:
            word = self.history.words[self.decisions % len(self.history.words)]
            self.decisions += 1
            try:
                await self.house.store.decide(OWNER, card.id, self._verdict(card, word))
            except CardDecided:
                return False  # the turn moved on: it was cancelled meanwhile
        return bool(cards)

    def _verdict(self, card: Card, word: str) -> Verdict:
        assert card.call is not None
        if card.kind == "approval":
            if word == "no":
                return Verdict(DecisionKind.DENY, note="no", by=OWNER)
            edited = {"label": f"{card.call.arguments['label']}!"} if word == "edit" else None
            return Verdict(DecisionKind.APPROVE, arguments=edited, by=OWNER)
        if word == "no":
            return Verdict(DecisionKind.GIVE_UP, note="nobody knows", by=OWNER)
        if self.stage.effects[card.call.key]:
            return Verdict(DecisionKind.HAPPENED, result=f"{card.call.arguments['label']}: done", by=OWNER)
        return Verdict(DecisionKind.RETRY, by=OWNER)

    async def _act(self) -> None:
        """Does what the director asks for."""
        while True:
            asked = await self.stage.called()
            if asked == "kill":
                async with self.life:
                    dying = asyncio.create_task(self.house.die())
                    await asyncio.sleep(0)
                    self.stage.done()
                    await dying
                    await self.open()
            elif asked == "cancel":
                async with self.life:
                    active = await self.house.store.last_turn(OWNER, self.conversation or "")
                    if active is not None:
                        await self.house.store.cancel(OWNER, active.id, by=OWNER)
            else:
                await self._send("hello instead", "interrupt", discard=True)
            self.stage.done()

    async def _why(self, turn: str) -> str:
        found = await self.house.store.turn(OWNER, turn)
        return f"{found.status}: {found.failure}"

    async def _close(self) -> None:
        await self.house.worker.drain(0.0)
        self.house.transport.close()
        await self.house.store.close()


async def play(history: History) -> None:
    stage = Stage(acts=dict(history.acts))
    staging.enter(stage)
    with tempfile.TemporaryDirectory(prefix="perdure-history-") as folder:
        played = Play(Path(folder), history, stage)
        await played.run()
        assert stage.refusals == []
        await _judge(played)


async def _judge(played: Play) -> None:
    """What the database says once all is over."""
    await played.open()
    store, stage = played.house.store, played.stage
    try:
        said = await _thread(played)
        assert list(problems(said)) == []
        for turn in played.turns:
            calls = {call.key: call for call in await store.calls(OWNER, turn)}
            cards = await store.cards(OWNER, turn)
            for key, call in calls.items():
                again = sum(1 for card in cards if _decided(card, key, DecisionKind.RETRY))
                if call.call.effect == "once":
                    assert stage.starts[key] <= 1 + again, f"{call} was started {stage.starts[key]} times"
                if call.call.effect == "checkable":
                    assert stage.effects[key] <= 1, f"{call} took effect {stage.effects[key]} times"
                if call.call.name == "restart" and stage.starts[key]:
                    allowed = {_approved(card) for card in cards if _decided(card, key, DecisionKind.APPROVE)}
                    assert set(stage.arguments[key]) <= allowed, f"{call} ran with {stage.arguments[key]}"
    finally:
        await played._close()


def _decided(card: Card, key: str, decision: DecisionKind) -> bool:
    return (
        card.call is not None
        and card.call.key == key
        and card.verdict is not None
        and card.verdict.decision is decision
    )


def _approved(card: Card) -> str:
    assert card.call is not None and card.verdict is not None
    return str((card.verdict.arguments or card.call.arguments)["label"])


async def _thread(played: Play) -> list[Said]:
    events = await played.house.store.events(played.conversation or "", limit=100_000)
    shown = {}
    for event in events:
        if event.kind == "message":
            shown[event.payload["message"]["id"]] = event.payload["message"]
    return [from_wire(message) for message in shown.values() if message.get("status") != "removed"]


@pytest.fixture(autouse=True, scope="module")
def quiet_stage() -> Iterator[None]:
    """The staged model is known by its name; logs are quiet."""
    create = models._create
    patch = pytest.MonkeyPatch()
    patch.setattr(models, "_create", lambda name, *others: StagedModel() if name == "staged" else create(name, *others))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    yield
    structlog.reset_defaults()
    patch.undo()


@pytest.mark.timeout(120 + 20 * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_each_call_has_exactly_one_result_before_the_next_model_call(history: History) -> None:
    asyncio.run(play(history))
