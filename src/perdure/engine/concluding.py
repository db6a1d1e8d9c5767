"""Ends an attempt as its drive decided: written once, tried once more where it broke before anything was written, and handed
back where the disk does not take it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain, repeat
from typing import Any

from perdure.clock import Clock
from perdure.effects import OnUncertain
from perdure.engine.endings import Ending, Finish, Park, Release, Undo, gate_question, name_of
from perdure.engine.ledger import AttemptLedger
from perdure.engine.mending import Mending
from perdure.engine.relay import Partial
from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.store.base import LeasedAttempt, Question, Spoken
from perdure.turns import Outcome, TurnStatus

STORAGE_RETRY_SECONDS = 5.0
"""How long a turn rests that met a failing disk."""

HAND_BACK_WAITS_SECONDS = (0.0, 1.0, 3.0, 5.0)
"""Before each try; the last one again and again."""


class Conclusion:
    """The end of one attempt."""

    def __init__(
        self, attempt: LeasedAttempt, mending: Mending, clock: Clock, stopping: asyncio.Event, log: Any
    ) -> None:
        """`stopping` is set when this process must end."""
        self._attempt = attempt
        self._mending = mending
        self._clock = clock
        self._stopping = stopping
        self._log = log

    async def write(self, ending: Ending, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        """`spoken`: what was streamed and is in no message yet. Raises what the store raised."""
        try:
            await self._write(ending, ledger, spoken)
        except (LeaseLost, StorageFull, StorageError):
            raise
        except Exception:
            if self._attempt.latched is not None:
                raise
            self._log.exception("the attempt's ending broke; it is tried once more")
            await self._write(ending, ledger, spoken)

    async def _write(self, ending: Ending, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        match ending:
            case Undo():
                await self._undo(ledger, spoken)
            case Park(questions):
                await self._attempt.park(questions)
            case Finish(status, failure):
                await self._attempt.finish(status, failure)
            case Release():
                await self._attempt.release(Outcome.RELEASED)
        self._log.info("attempt ended", ending=name_of(ending))

    async def ask(self, ledger: AttemptLedger) -> Sequence[Question]:
        """The end of an attempt that was claimed to ask and for nothing else; what it asked. No code of the graph runs."""
        unknown = self._unknown(ledger)
        if unknown:
            await self._attempt.park(unknown, despite_cancel=True)
        else:  # a claim for nothing: not again at once
            await self._attempt.release(
                Outcome.RELEASED, not_before=self._clock.now() + timedelta(seconds=STORAGE_RETRY_SECONDS)
            )
        self._log.info("attempt ended", ending="asked" if unknown else str(Outcome.RELEASED))
        return unknown

    # -- a cancel -----------------------------------------------------------------------------------------------------

    async def _undo(self, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        unknown = self._unknown(ledger)
        if unknown:
            await self._attempt.park(unknown, despite_cancel=True, spoken=_kept(spoken, ledger))
            return
        await self._repair(ledger, spoken)
        await self._attempt.finish(TurnStatus.CANCELLED)

    def _unknown(self, ledger: AttemptLedger) -> list[Question]:
        """The calls whose outcome a person must tell before the turn can be closed."""
        if self._attempt.turn.discards_cards or ledger.policy.on_uncertain is not OnUncertain.ASK:
            return []
        return [gate_question(gate) for gate in ledger.calls.uncertain()]

    async def _repair(self, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        try:
            await self._mending.undo(ledger, spoken)
        except (LeaseLost, StorageFull, StorageError):
            raise
        except Exception as error:  # the graph's own code (a reducer, a router): the cancel still counts
            if self._attempt.latched is not None:
                raise self._attempt.latched from error
            self._log.exception("the thread was not wholly repaired", error=type(error).__name__)

    # -- a failing disk -----------------------------------------------------------------------------------------------

    async def give_back(self, error: StorageError | StorageFull) -> None:
        """Nothing of this turn could be read or written: it is nobody's failure and spends no attempt. Where even this
        cannot be written it is tried until the disk takes writes again: no sweep takes a turn that this process holds, and
        the fence refuses what comes too late. At a shutdown the turn is left to its lease."""
        self._log.error("storage failed; the turn is handed back", error=error.message)
        for wait_seconds in chain(HAND_BACK_WAITS_SECONDS, repeat(HAND_BACK_WAITS_SECONDS[-1])):
            if wait_seconds and await self._stopped_within(wait_seconds):
                return
            try:
                await self._hand_back(error)
                return
            except LeaseLost:
                return
            except (StorageFull, StorageError) as again:
                self._log.error("the turn could not be handed back", error=again.message)

    async def _stopped_within(self, seconds: float) -> bool:
        """Waits so long; True, and at once, when this process stops."""
        waits = [asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._stopping.is_set() and not waits[0].done()

    async def _hand_back(self, error: StorageError | StorageFull) -> None:
        not_before = self._clock.now() + timedelta(seconds=STORAGE_RETRY_SECONDS)
        if self._attempt.latched is None:
            await self._attempt.release(Outcome.RELEASED, not_before=not_before, error=error.message)
        else:
            await self._attempt.give_up(not_before=not_before, error=error.message)


def _kept(spoken: Sequence[Partial], ledger: AttemptLedger) -> list[Spoken]:
    """For the repair, which another attempt will make: without what was said inside of a tool call."""
    return [Spoken(each.id, each.text) for each in spoken if each.tasks.isdisjoint(ledger.calling)]
