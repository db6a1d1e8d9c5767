"""What the clients know: every message they sent, what they were promised for it, and what may come of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.crash.client import Seen, Watcher
from tests.crash.server import Boot


@dataclass(frozen=True, slots=True)
class Expected:
    """What a turn comes to whatever dies in between."""

    answer: str | None = None
    """The last assistant text of a completed turn, None when the scenario does not say."""

    labels: tuple[str, ...] = ()
    """`label` arguments of the effects that a completed turn has had, each under one key."""

    assistant_messages: int | None = None
    endings: frozenset[str] = frozenset({"completed"})
    """Statuses in which the turn may come to rest."""

    codes: frozenset[str] = frozenset()
    """Failure codes it may carry."""


@dataclass(slots=True)
class Sent:
    """One message. `turn` is None until a client got its 202."""

    key: str
    text: str
    expected: Expected
    agent: str
    conversation: str | None = None
    turn: str | None = None
    exhaustible: bool = False
    """Kills hit this turn so often that giving it up after three attempts without progress is right."""


@dataclass(slots=True)
class History:
    """Everything that the clients and the supervisor of one server saw."""

    sent: list[Sent] = field(default_factory=list)
    resumes: Counter[str] = field(default_factory=Counter)
    resume_tries: Counter[str] = field(default_factory=Counter)
    """Requests sent for them; a try whose answer was lost may have counted."""

    answers: Counter[str] = field(default_factory=Counter)
    cancels: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    """What each client received, of watchers that still follow as of those that left."""

    watchers: list[Watcher] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    pauses: int = 0
    """How often the process slept past its leases, which ends attempts without a death."""

    transcripts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """`GET /api/conversations/{id}` once all had come to rest."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of the outside world's record."""

    tool: str
    label: str
    key: str
    at: float

    @property
    def turn(self) -> str:
        return self.key.rpartition("-")[0]


def read_effects(path: Path) -> list[Effect]:
    """Whole lines only: a line cut off by a kill was never synced, hence never happened. Of lines that tell a phase
    (`world.py`) those of effects."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    return [
        Effect(line["tool"], str(line["args"].get("label", "")), line["key"] or "", seconds(line["at"]))
        for line in lines
        if line.get("phase", "effect") == "effect"
    ]


def seconds(at: float | str) -> float:
    """Unix seconds of an instant written as a number or as ISO text."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else float(at)
