"""Finds turns whose owner died and moves each on, at start and for ever after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

import structlog

from perdure.clock import Clock
from perdure.graph.load import HostedGraph
from perdure.store.base import Store
from perdure.turns import Turn

UNCLEAN_BOOTS = 5
UNCLEAN_WINDOW = timedelta(minutes=5)

log = structlog.get_logger("perdure.engine")


class Recovery:
    """`sweep` at start and every `sweep_seconds`. An orphan is moved by its epoch: acting on a stale list is harmless."""

    def __init__(
        self, store: Store, agents: Mapping[str, HostedGraph], clock: Clock, held: Callable[[], Collection[str]]
    ) -> None:
        """`held`: the turns that live attempts of this process drive now."""
        self._store = store
        self._agents = agents
        self._clock = clock
        self._held = held
        self._safe_mode = False
        self._strangers: set[str] = set()

    @property
    def safe_mode(self) -> bool:
        """This process was started again too often: it serves, but leaves the turns alone that may have killed it."""
        return self._safe_mode

    async def sweep(self) -> int:
        """Moves every orphan on, in safe mode those alone that a person wants closed: nothing of them has to run for that.
        How many were moved."""
        await self._judge_boots()
        moved = 0
        for orphan in await self._store.orphans(self._clock.now(), self._held()):
            if not self._safe_mode or orphan.cancel_requested_at is not None:
                moved += await self._recover(orphan)
        return moved

    async def _judge_boots(self) -> None:
        unclean = await self._store.unclean_boots(self._clock.now() - UNCLEAN_WINDOW)
        safe = unclean > UNCLEAN_BOOTS
        if safe and not self._safe_mode:
            log.error(
                "started again too often: turns that were running are left alone until it has been quiet for a while",
                unclean_starts=unclean,
                minutes=UNCLEAN_WINDOW.total_seconds() / 60,
            )
        elif self._safe_mode and not safe:
            log.info("quiet again: turns that were running are driven on")
        self._safe_mode = safe

    async def _recover(self, orphan: Turn) -> bool:
        agent = self._agents.get(orphan.agent)
        if agent is None:
            self._tell_stranger(orphan)
            return False
        recovered = await self._store.recover(
            orphan.id, orphan.epoch, now=self._clock.now(), manual=agent.settings.redrive == "manual"
        )
        if recovered is None:
            return False
        log.info("orphan recovered", turn=orphan.id, conversation=orphan.conversation, status=str(recovered.status))
        return True

    def _tell_stranger(self, orphan: Turn) -> None:
        if orphan.agent not in self._strangers:
            self._strangers.add(orphan.agent)
            log.warning("turns of an agent that this server does not host are left alone", agent=orphan.agent)
