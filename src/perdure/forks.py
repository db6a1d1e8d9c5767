"""Forks: where one begins, what is asked for and what came of it, and where conversations part. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.turns import RequestKey, TurnStatus


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork begins: with the state of a checkpoint, or with nothing."""

    checkpoint: str | None
    turn: str | None
    """The turn of the source that it begins before, by the thread's word; None within a turn, and at its head."""


@dataclass(frozen=True, slots=True)
class FirstTurn:
    """A turn that is accepted together with the fork."""

    id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewFork:
    """What `Store.fork` needs. Ids are made by the caller."""

    id: str
    source: str
    scope: str | None
    """In which the source must be."""

    owner: str
    by: str
    point: ForkPoint
    title: str | None
    """None: the source's, with a number."""

    messages: Sequence[Mapping[str, Any]]
    """Wire forms of the messages at the point, which the fork can be found by."""

    turn: FirstTurn | None = None
    request_key: RequestKey | None = None


@dataclass(frozen=True, slots=True)
class Forked:
    """The durable answer. `repeated` tells that an idempotency key was met again."""

    conversation: str
    turn: str | None
    status: TurnStatus | None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """One way on from a place, and a conversation that goes it."""

    conversation: str
    title: str
    status: TurnStatus | None
    created_at: datetime
    turn: str | None
    """The first turn after the place; None when there is none yet."""

    current: bool


@dataclass(frozen=True, slots=True)
class Parting:
    """A place where conversations part. `turn`: the first one after it in the conversation that was asked about."""

    checkpoint: str | None
    turn: str | None
    branches: Sequence[Branch]
    """In the order in which they were made; exactly one is current."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A process that drives turns of this journal."""

    owner: str
    """`host:pid:boot_id`."""

    version: str
    started_at: datetime
    running: int
    """Turns that it drives now."""


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """The files that hold the journal. `wal_bytes`: of what is committed and not yet in the main one."""

    path: str
    bytes: int
    wal_bytes: int


def check_one_place(message: str | None, checkpoint: str | None) -> None:
    """Of what a fork is made from. Raises ValueError, a sentence."""
    if (message is None) == (checkpoint is None):
        raise ValueError("Name either the `message` to begin before or the `checkpoint` to begin with.")
