"""Races of people for one card: exactly one decision counts, and every loser is told whose, what and when.

`store_races` races the store's own verb on a real database file; `served_races` races requests to a real server process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from perdure.clock import SystemClock
from perdure.effects import EffectClass, Gate, GateRequest
from perdure.errors import CardDecided
from perdure.store.base import Decided, LeasedAttempt, Question
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Card, CardState, DecisionKind, Limits, NewTurn, TurnStatus, Verdict
from tests.crash.client import Api, Reply
from tests.crash.people import Person
from tests.crash.records import Expected, History
from tests.crash.scripted import DONE, write_script
from tests.crash.server import Launcher, Server
from tests.crash.trial import PROJECT

LEASE = timedelta(minutes=5)
MOST = 8
"""Deciders of one race; at least two."""


@dataclass(slots=True)
class RaceReport:
    seed: int
    races: int = 0
    deciders: int = 0
    violations: list[str] = field(default_factory=list)


async def store_races(folder: Path, races: int, seed: int) -> RaceReport:
    """Each race on a parked turn of its own."""
    report, luck = RaceReport(seed), Random(f"{seed}/races")
    transport = LocalTransport()
    store = await open_store(folder / "races.db", clock=SystemClock(), limits=Limits(), notify=transport)
    try:
        for race in range(races):
            card = await _parked(store, race)
            verdicts = [_verdict(luck, f"decider-{number}") for number in range(luck.randint(2, MOST))]
            ends = await asyncio.gather(
                *(store.decide(None, card.id, verdict) for verdict in verdicts), return_exceptions=True
            )
            report.races += 1
            report.deciders += len(verdicts)
            report.violations += await _judged(store, card, verdicts, ends)
            await (await _claimed(store)).finish(TurnStatus.COMPLETED)
    finally:
        transport.close()
        await store.close()
    return report


async def _parked(store: SQLiteStore, race: int) -> Card:
    new = NewTurn(uuid4().hex, "ada", "a", {"message": "go"}, None, uuid4().hex, "go")
    accepted = await store.accept(new)
    attempt = await _claimed(store)
    request = GateRequest(
        Gate.APPROVAL, f"{accepted.turn}-{race}", "c", "m", "restart", None, {"label": "x"}, EffectClass.ONCE
    )
    await attempt.park([Question(request.id, request.value(), request)])
    (card,) = await store.cards(None, accepted.turn)
    return card


async def _claimed(store: SQLiteStore) -> LeasedAttempt:
    now = SystemClock().now()
    attempt = await store.claim(agents={"a": None}, suspects=False, now=now, lease_expires_at=now + LEASE)
    assert attempt is not None
    return attempt


def _verdict(luck: Random, by: str) -> Verdict:
    if luck.random() < 0.5:
        return Verdict(DecisionKind.DENY, note=f"said {by}", by=by)
    edited = {"label": by} if luck.random() < 0.5 else None
    return Verdict(DecisionKind.APPROVE, arguments=edited, note=f"said {by}", by=by)


async def _judged(store: SQLiteStore, card: Card, verdicts: list[Verdict], ends: list[Any]) -> list[str]:
    won = [verdict for verdict, end in zip(verdicts, ends, strict=True) if isinstance(end, Decided)]
    lost = [end for end in ends if isinstance(end, CardDecided)]
    if len(won) != 1 or len(lost) != len(ends) - 1:
        return [f"G: {len(ends)} deciders of {card.id} ended as {[type(end).__name__ for end in ends]}"]
    (kept,) = await store.cards(None, card.turn)
    found = (
        []
        if _said(kept) == (won[0].by, won[0].decision, won[0].arguments, won[0].note)
        else [f"G: {kept} is not {won[0]}"]
    )
    for end in lost:
        found += _told(end.details, won[0].by, str(won[0].decision), kept.verdict.at if kept.verdict else None)
    status = (await store.turn(None, card.turn)).status
    if kept.state is not CardState.DECIDED or status is not TurnStatus.QUEUED:
        found.append(f"G: {card.id} was decided and is {kept.state}; its turn is {status}")
    return found


def _said(card: Card) -> tuple[Any, ...]:
    said = card.verdict
    return () if said is None else (said.by, said.decision, said.arguments, said.note)


def _told(details: Any, by: str, decision: str, at: datetime | None) -> list[str]:
    told = details.get("decided_by"), str(details.get("decision"))
    when = details.get("decided_at")
    instant = datetime.fromisoformat(when) if isinstance(when, str) else when
    if told != (by, decision) or instant != at:
        return [f"G: a loser was told {dict(details)}; it was {by} with {decision} at {at}"]
    return []


async def served_races(folder: Path, launcher: Launcher, races: int, seed: int) -> RaceReport:
    """Real requests by named people, each with a token of its own, on cards of turns that a real server parked."""
    report, luck = RaceReport(seed), Random(f"{seed}/served")
    server = Server(folder, launcher, PROJECT)
    try:
        assert await server.start(), server.said()
        deciders = [await _decider(server, f"decider-{number}") for number in range(MOST)]
        for _ in range(races):
            report.violations += await _raced(server, luck, luck.sample(deciders, luck.randint(2, MOST)), report)
        code = await server.stop()
        if code:
            report.violations.append(f"!: the server ended with {code}: {server.said()}")
    finally:
        await server.close()
    return report


async def _decider(server: Server, name: str) -> tuple[str, Api]:
    reply = await server.api.request("POST", "/api/tokens", {"name": name, "role": "operator"})
    assert reply.status in {200, 201}, f"{reply}"
    return name, Api(server.port, reply.body["secret"])


async def _raced(server: Server, luck: Random, deciders: list[tuple[str, Api]], report: RaceReport) -> list[str]:
    history = History()
    person = Person(server, history)
    sent = await person.send(write_script([[("gated", "x")]]), Expected(DONE), agent="effects")
    assert person.watcher is not None and sent.turn is not None
    turn = sent.turn
    await person.watcher.until(lambda view: bool(view.turn(turn).open_cards))
    card = person.watcher.view.turn(turn).open_cards[0]["card"]
    bodies = [{"decision": luck.choice(("approve", "deny")), "note": f"said {name}"} for name, _ in deciders]
    replies = await asyncio.gather(
        *(api.request("POST", f"/api/approvals/{card}", body) for (_, api), body in zip(deciders, bodies, strict=True))
    )
    await person.ended(sent)
    await person.leave()
    report.races += 1
    report.deciders += len(deciders)
    kept = await server.api.request("GET", f"/api/approvals/{card}")
    names = [name for name, _ in deciders]
    return _served(card, kept.body, dict(zip(names, replies, strict=True)), dict(zip(names, bodies, strict=True)))


def _served(card: str, kept: Any, replies: dict[str, Reply], bodies: dict[str, dict[str, str]]) -> list[str]:
    won = [name for name, reply in replies.items() if reply.status in {200, 202}]
    lost = [reply.body for reply in replies.values() if reply.status == 409]
    if len(won) != 1 or len(lost) != len(replies) - 1:
        return [f"G: {len(replies)} deciders of {card} were answered {[reply.status for reply in replies.values()]}"]
    decision = bodies[won[0]]["decision"]
    told = [
        f"G: a loser for {card} was told {error}; it was {won[0]} with {decision}"
        for error in lost
        if (error["code"], error.get("decided_by"), error.get("decision")) != ("APPROVAL_DECIDED", won[0], decision)
        or error.get("decided_at") != kept.get("decided_at")
    ]
    if (kept.get("decided_by"), kept.get("decision")) != (won[0], decision):
        told.append(f"G: {card} is shown as {kept}; it was {won[0]} with {decision}")
    return told
