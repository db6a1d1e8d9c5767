"""The store's verbs that people (or what acts for them) ask for: each one transaction, told after its commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import apsw

from perdure.clock import Clock
from perdure.events import Event
from perdure.failpoints import failpoint
from perdure.store.base import Decided, Notify
from perdure.store.sqlite import acceptance, audit, decisions, maintenance, search
from perdure.store.sqlite.acceptance import NumberNeeded
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.checkpointer import Checkpoints
from perdure.store.sqlite.house import House
from perdure.store.sqlite.journal import QUERIES, Told, ending, publish, require_conversation
from perdure.store.sqlite.keys import repeated_request
from perdure.store.sqlite.listing import Messages
from perdure.store.sqlite.opening import Opened
from perdure.store.sqlite.rows import clean, conversation_from
from perdure.turns import (
    Accepted,
    Conversation,
    Limits,
    NewTurn,
    RequestKey,
    Turn,
    TurnStatus,
    Verdict,
)


class PeoplesVerbs(House):
    """The half of `perdure.store.base.Store` that writes what people ask for."""

    def __init__(
        self,
        opened: Opened,
        messages: Messages,
        limits: Limits,
        *,
        clock: Clock,
        notify: Notify,
        state_types: Collection[str],
        vfs: str | None,
    ) -> None:
        super().__init__(opened, messages, limits, clock=clock, notify=notify, vfs=vfs)
        self._checkpoints = Checkpoints(self._readers, state_types=state_types)
        self._live: dict[str, SQLiteAttempt] = {}

    # -- turns --------------------------------------------------------------------------------------------------------

    async def accept(self, new: NewTurn) -> Accepted:
        failpoint("accept.before")
        now = self._clock.now()
        topics = ("cancel", "queue", "changes") if new.when_busy == "interrupt" else ("queue", "changes")
        accepted: Accepted = await self._tell(lambda connection: acceptance.accept(connection, new, now), *topics)
        failpoint("accept.after")
        return accepted

    async def repeated(self, owner: str, request_key: RequestKey) -> Accepted | None:
        now = self._clock.now()
        return await self._readers.run(lambda connection: repeated_request(connection, owner, request_key, now))

    async def resume(
        self, scope: str | None, conversation: str, request_key: RequestKey | None = None, *, by: str = ""
    ) -> Accepted:
        failpoint("resume.before")
        now = self._clock.now()

        def reopen(connection: apsw.Connection) -> Accepted:
            return acceptance.resume(connection, scope, conversation, now, request_key, by=by)

        resumed = await self._commit(reopen, "queue", "changes")
        failpoint("resume.after")
        return resumed

    async def cancel(self, scope: str | None, turn: str, *, by: str = "") -> Turn:
        failpoint("cancel.before")
        try:
            told = await self._cancel(scope, await self.turn(scope, turn), by)
        except NumberNeeded:  # an attempt claimed the thread meanwhile; by now it is known here
            told = await self._cancel(scope, await self.turn(scope, turn), by, insist=True)
        failpoint("cancel.after")
        cancelled: Turn = told.result
        return cancelled

    async def _cancel(self, scope: str | None, turn: Turn, by: str, *, insist: bool = False) -> Told:
        """The end of a waiting turn takes its number from the attempt that runs in the thread, to keep the order of seqs."""
        live = self._live.get(turn.conversation) if turn.status is TurnStatus.WAITING else None
        kind, payload = ending(TurnStatus.CANCELLED, None)
        lent = live.lend(turn.id, kind, payload) if live else None
        now = self._clock.now()

        def transaction(connection: apsw.Connection) -> Told:
            return acceptance.cancel(
                connection,
                scope,
                turn.id,
                now,
                by=by,
                seq=lent.seq if lent else None,
                reserved_by=None if insist else self._owner.name,
            )

        def committed(told: Told) -> None:
            used = lent is not None and any(event.seq == lent.seq for event in told.events)
            if live and lent:
                live.lent(lent, committed=used)
            if not used:
                self._publish(told.events)
            self._ring("cancel", "queue", "changes")

        try:
            return await self._writer.submit(transaction, committed=committed)
        except Exception:
            if live and lent:
                live.lent(lent, committed=False)
            raise

    # -- decisions ----------------------------------------------------------------------------------------------------

    async def answer(
        self,
        scope: str | None,
        conversation: str,
        answers: Mapping[str, Verdict],
        decided_by: str,
        request_key: RequestKey | None = None,
    ) -> Accepted:
        failpoint("decision.before")
        now = self._clock.now()

        def decide(connection: apsw.Connection) -> Told:
            return decisions.answer(
                connection, scope, conversation, answers, decided_by=decided_by, now=now, request_key=request_key
            )

        accepted: Accepted = await self._tell(decide, "queue", "changes")
        failpoint("decision.after")
        return accepted

    async def decide(self, scope: str | None, card: str, verdict: Verdict) -> Decided:
        failpoint("decision.before")
        now = self._clock.now()

        def decide(connection: apsw.Connection) -> Told:
            return decisions.decide(connection, scope, card, verdict, now)

        decided: Decided = await self._tell(decide, "queue", "changes")
        failpoint("decision.after")
        return decided

    # -- conversations ------------------------------------------------------------------------------------------------

    async def rename(self, scope: str | None, conversation: str, title: str, *, by: str = "") -> Conversation:
        now = self._clock.now()

        def transaction(connection: apsw.Connection) -> Conversation:
            owner = require_conversation(connection, scope, conversation)["owner"]
            QUERIES.run(connection, "conversation_rename", id=conversation, title=clean(title))
            search.keep_title(connection, conversation, owner, title)
            audit.note(connection, "rename", by=by or owner, now=now, owner=owner, conversation=conversation)
            return conversation_from(require_conversation(connection, scope, conversation))

        return await self._commit(transaction, "changes")

    async def delete(
        self, scope: str | None, conversation: str, *, by: str = "", served: Collection[str] | None = None
    ) -> None:
        self._checkpoints.forget(conversation)
        now = self._clock.now()

        def transaction(connection: apsw.Connection) -> None:
            maintenance.delete_conversation(connection, scope, conversation, by=by, now=now, served=served)

        try:
            await self._commit(transaction, "changes")
        finally:
            self._checkpoints.forget(conversation)
        while await self._writer.submit(maintenance.vacuum):
            pass

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _tell(self, transaction: Callable[[apsw.Connection], Told], *topics: str) -> Any:
        """Publishes what the transaction committed; then its result, or its refusal is raised."""
        told = await self._writer.submit(transaction, committed=self._told(*topics))
        if told.refusal is not None:
            raise told.refusal
        return told.result

    def _told(self, *topics: str) -> Callable[[Told], None]:
        def committed(told: Told) -> None:
            self._publish(told.events)
            self._ring(*topics)

        return committed

    def _publish(self, events: Sequence[Event]) -> None:
        for event in events:
            publish(self._notify, event)
