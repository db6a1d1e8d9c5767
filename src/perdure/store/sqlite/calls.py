"""The tool-call ledger: its rows, and what an attempt knows of them without asking the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any

import apsw

from perdure.errors import LeaseLost
from perdure.ledger import CallState, ToolCall
from perdure.store.base import StoredResult
from perdure.store.sqlite.journal import QUERIES, guarded
from perdure.store.sqlite.rows import clean, micros, to_json
from perdure.turns import Spent, Turn


@dataclass(frozen=True, slots=True)
class KnownCall:
    starts: int
    task: str
    """LangGraph's id of the task that started it last."""

    recorded: bool
    """Its result is in the ledger and not settled."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a call as it is to be stored. `likeness` and `repeats` as in `LeasedAttempt.repeats`, after it."""

    starts: int
    likeness: str
    repeats: int

    @property
    def first(self) -> bool:
        return self.starts == 1


class CallBook:
    """Of one attempt, on the event loop: known calls, what the turn spent, what is still to be counted.

    Counts go up when a write is enqueued: a write that fails ends the attempt.
    """

    def __init__(self, turn: Turn, calls: Mapping[str, KnownCall], repeats: tuple[str, int]) -> None:
        self.spent: Spent = turn.spent
        self.repeats = repeats
        self._repeats_before = repeats
        self._likenesses: dict[str, str] = {}
        """Of the calls that this attempt started first, by key, in this order."""

        self._calls = dict(calls)
        self._recorded: dict[str, list[str]] = {}
        for key, call in calls.items():
            if call.recorded:
                self._recorded.setdefault(call.task, []).append(key)
        self._uncounted_model_calls = 0

    def start(self, call: ToolCall, key: str, task: str) -> Start:
        """One more start. A call that is known already was counted at its first."""
        known = self._calls.get(key)
        self._forget_record(key)
        if known is None:
            self._likenesses[key] = call.likeness
            self.repeats = _repeated(self.repeats, call.likeness)
            self.spent = replace(self.spent, tool_calls=self.spent.tool_calls + 1)
        started = Start(known.starts + 1 if known else 1, *self.repeats)
        self._calls[key] = KnownCall(started.starts, task, recorded=False)
        return started

    def withdraw(self, key: str) -> None:
        """The call was not started after all: its first start is not counted, whatever was started since."""
        del self._calls[key], self._likenesses[key]
        self.repeats = reduce(_repeated, self._likenesses.values(), self._repeats_before)
        self.spent = replace(self.spent, tool_calls=self.spent.tool_calls - 1)

    def record(self, key: str) -> None:
        known = self._calls.get(key)
        if known is not None and not known.recorded:
            self._calls[key] = replace(known, recorded=True)
            self._recorded.setdefault(known.task, []).append(key)

    def settle(self, task: str) -> Sequence[str]:
        """The recorded calls of a task, which from now on are settled."""
        keys = self._recorded.pop(task, [])
        for key in keys:
            self._calls[key] = replace(self._calls[key], recorded=False)
        return keys

    def _forget_record(self, key: str) -> None:
        known = self._calls.get(key)
        if known is not None and known.recorded:
            self._recorded[known.task].remove(key)

    def count_model_call(self) -> None:
        self._uncounted_model_calls += 1
        self.spent = replace(self.spent, model_calls=self.spent.model_calls + 1)

    def take_model_calls(self) -> int:
        """How many the next commit has to add to the turn."""
        taken, self._uncounted_model_calls = self._uncounted_model_calls, 0
        return taken

    def add_tokens(self, usage: Mapping[str, int]) -> None:
        if usage:
            self.spent = replace(self.spent, tokens=self.spent.tokens + usage.get("total_tokens", 0))


def _repeated(repeats: tuple[str, int], likeness: str) -> tuple[str, int]:
    """`repeats` after one more call."""
    last, times = repeats
    return (likeness, times + 1 if likeness == last else 1)


def told(call: ToolCall, key: str, starts: int) -> dict[str, Any]:
    """The data of a `trace` event of phase `call`."""
    server = {} if call.server is None else {"server": call.server}
    return {
        "arguments": dict(call.arguments),
        "message_id": call.message_id,
        **server,
        "effect_class": str(call.effect),
        "key": key,
        "starts": starts,
    }


# -- inside a transaction of the attempt ------------------------------------------------------------------------------


def known(connection: apsw.Connection, turn: str) -> dict[str, KnownCall]:
    """The turn's calls by key."""
    return {
        row["key"]: KnownCall(row["starts"], row["task"], row["state"] == CallState.RECORDED)
        for row in QUERIES.all(connection, "calls_known", turn=turn)
    }


def start_row(turn: Turn, call: ToolCall, key: str, task: str, now: datetime) -> dict[str, Any]:
    """The bindings of `start`, made on the event loop: what a tool does to its arguments later is not in them."""
    return {
        "key": key,
        "turn": turn.id,
        "conversation": turn.conversation,
        "call_id": clean(call.id),
        "message_id": clean(call.message_id),
        "name": clean(call.name),
        "server": None if call.server is None else clean(call.server),
        "arguments": to_json(call.arguments),
        "digest": call.digest,
        "effect_class": str(call.effect),
        "epoch": turn.epoch,
        "task": task,
        "now": micros(now),
    }


def start(connection: apsw.Connection, turn: Turn, row: Mapping[str, Any], started: Start) -> None:
    guarded(connection, "call_start", **row)
    if started.first:
        guarded(
            connection,
            "turn_count_tool_call",
            id=turn.id,
            epoch=turn.epoch,
            repeated=clean(started.likeness),
            repeats=started.repeats,
        )


def withdraw(connection: apsw.Connection, turn: Turn, key: str, repeats: tuple[str, int]) -> None:
    """`repeats` without the call."""
    if QUERIES.run(connection, "call_withdraw", key=key, turn=turn.id, epoch=turn.epoch):
        likeness, times = repeats
        guarded(
            connection,
            "turn_uncount_tool_call",
            id=turn.id,
            epoch=turn.epoch,
            repeated=clean(likeness),
            repeats=times,
        )


def record(
    connection: apsw.Connection, turn: Turn, key: str, result: StoredResult, *, status: str, now: datetime
) -> None:
    """The fence is in the statement. Raises LeaseLost."""
    ours = QUERIES.run(
        connection,
        "call_record",
        key=key,
        turn=turn.id,
        epoch=turn.epoch,
        status=status,
        kind=result.kind,
        data=result.data,
        now=micros(now),
    )
    if not ours:
        raise LeaseLost(conversation=turn.conversation, turn=turn.id)


def unknown(connection: apsw.Connection, turn: Turn, key: str, error: str) -> None:
    QUERIES.run(connection, "call_unknown", key=key, turn=turn.id, error=clean(error))


def settle(connection: apsw.Connection, keys: Sequence[str]) -> None:
    QUERIES.run(connection, "calls_settle", keys=to_json(list(keys)))
