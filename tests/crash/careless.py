"""Seeded defects around tool calls and decisions: the `sow` functions of `defects.py` that patch guard, ledger and cards."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import wraps
from typing import Any

from perdure import ledger
from perdure.engine import ledger as attempts
from perdure.engine.ledger import AttemptLedger, Calls
from perdure.graph import answers
from perdure.graph.guard import _GuardedCall
from perdure.ledger import CallRecord, ToolCall
from perdure.store.sqlite import decisions
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Verdict


def intended_late() -> None:
    """The call runs first, its intent is written down when it is back."""
    intend, run = AttemptLedger.intend, _GuardedCall._run

    async def nothing(self: AttemptLedger, call: ToolCall) -> None:
        return None

    @wraps(run)
    async def late(self: _GuardedCall, call: ToolCall, *how: Any) -> Any:
        result = await run(self, call, *how)
        assert isinstance(self.attempt, AttemptLedger)
        await intend(self.attempt, call)
        return result

    patch(AttemptLedger, "intend", nothing)
    patch(_GuardedCall, "_run", late)


def started_ignored() -> None:
    """The guard takes a call that was started for one that never was."""

    async def again(self: _GuardedCall, record: CallRecord) -> Any:
        return await self._start(replace(self.call, arguments=record.call.arguments))

    patch(_GuardedCall, "_again", again)


def recorded_before_it_happened() -> None:
    """What a call will give is taken down before it has given it."""
    run = _GuardedCall._run

    @wraps(run)
    async def hopeful(self: _GuardedCall, call: ToolCall, *how: Any) -> Any:
        said = f"{call.name} {call.arguments.get('label')}: done"
        self.attempt.result(call, answers.message(call, said))
        await asyncio.sleep(0.2)  # durable, before the kill that waits for the call's arrival
        return await run(self, call, *how)

    patch(_GuardedCall, "_run", hopeful)


def uncertain_hidden() -> None:
    """Nobody is asked about an uncertain call: the model gets an error text."""

    async def quiet(self: _GuardedCall, call: ToolCall, record: CallRecord) -> Any:
        return answers.unknown(call, record)

    patch(_GuardedCall, "_uncertain", quiet)


def any_verdict_will_do() -> None:
    """A gate takes the first decision of the turn, whichever card it was made on."""

    def first(self: Calls, gate_id: str) -> Verdict | None:
        return next((card.verdict for card in self.cards.values() if card.verdict is not None), None)

    patch(Calls, "verdict", first)


def edits_forgotten() -> None:
    """What runs are the model's arguments, not those that were approved."""
    patch(_GuardedCall, "_approved", lambda self, verdict: self.call)


def gate_forgotten() -> None:
    """A gated call that was approved or not: it runs."""

    async def first(self: _GuardedCall) -> Any:
        return await self._start(self.call)

    patch(_GuardedCall, "_first", first)


def keys_of_one_life() -> None:
    """Another life of the process gives the same call another key."""
    key = ledger.idempotency_key

    def fresh(turn: str, call: ToolCall) -> str:
        return key(turn, replace(call, id=f"{call.id}/{os.getpid()}"))

    for module in (ledger, attempts, answers):
        patch(module, "idempotency_key", fresh)


def cancel_forgotten() -> None:
    """A new attempt does not look whether its turn is to be cancelled."""
    claim = SQLiteStore.claim

    @wraps(claim)
    async def forgetful(self: SQLiteStore, **named: Any) -> Any:
        attempt = await claim(self, **named)
        if attempt is not None:
            attempt.turn = replace(attempt.turn, cancel_requested_at=None)
        return attempt

    async def nobody(self: SQLiteStore, turns: Any) -> set[str]:
        return set()

    patch(SQLiteStore, "claim", forgetful)
    patch(SQLiteStore, "cancel_requested", nobody)


def second_decision_counts() -> None:
    """No compare-and-set: who comes later overwrites what was decided."""
    patch(decisions, "_refuse_settled", lambda connection, card: None)


def patch(owner: Any, name: str, value: Any) -> None:
    """Puts `value` in the place of what stands there. Raises AssertionError when nothing does."""
    assert hasattr(owner, name), f"{owner} has no {name} any more: renew this defect"
    setattr(owner, name, value)
