"""The oracle itself: a clean run passes, and each kind of broken promise is seen. A checker that cannot fail proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from perdure.effects import digest_of
from perdure.ledger import ToolCall, idempotency_key
from perdure.messages import wire_message
from tests.crash.client import Connection, Seen, SseFrame
from tests.crash.oracle import violations
from tests.crash.records import Expected, History, Sent
from tests.crash.server import Boot

MIGRATIONS = Path(__file__).parents[2] / "src" / "perdure" / "store" / "sqlite" / "migrations"
START = 1_900_000_000_000_000
CALL = {"name": "slow_step", "args": {"label": "one"}, "id": "c1", "type": "tool_call"}
MESSAGES: tuple[BaseMessage, ...] = (
    HumanMessage("go", id="h"),
    AIMessage("", id="a", tool_calls=[CALL]),
    ToolMessage("done", id="r", tool_call_id="c1"),
    AIMessage("all done", id="z"),
)
REPEATED = HumanMessage("go", id="h2")
INVENTED = ToolMessage("charge x: done", id="r", tool_call_id="c1")
DENIED = ToolMessage("no", id="r", tool_call_id="c1", additional_kwargs={"perdure_status": "denied"})


def key_of(call: str, name: str = "slow_step") -> str:
    return idempotency_key("T", ToolCall(call, name, {}, "a"))


class Run:
    """A finished run of one turn that one kill cut, as its three records show it; tests spoil one of them."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "perdure.db"
        self.effects = folder / "effects.jsonl"
        self.db = apsw.Connection(str(self.database))
        for script in sorted(MIGRATIONS.glob("*.sql")):
            self.db.execute(script.read_text()).fetchall()
        self._rows()
        self.effect("one", "c1", START + 20)
        expected = Expected("all done", ("one",), 2)
        self.history = History(sent=[Sent("k", "go", expected, "demo", "C", "T")], boots=[Boot(1, 0, 1, "killed")])
        self.connection = Connection(None)
        self.history.seen.append(Seen("C", [self.connection]))
        self.show()

    def _rows(self) -> None:
        serde = JsonPlusSerializer()
        self.db.execute(
            "INSERT INTO conversations (id, owner, agent, title, message_count, next_seq, created_at, updated_at)"
            " VALUES ('C', 'o', 'demo', 't', 4, 20, ?, ?)",
            (START, START),
        )
        self.db.execute(
            "INSERT INTO turns (id, conversation, owner, agent, status, epoch, attempts, first_seq, committed_seq,"
            " accepted_at, ended_at) VALUES ('T', 'C', 'o', 'demo', 'completed', 2, 2, 1, 9, ?, ?)",
            (START, START + 90),
        )
        for number, ended, outcome in ((1, 25, "died"), (2, 90, "completed")):
            self.db.execute(
                "INSERT INTO attempts VALUES ('T', ?, ?, 'host:1:boot', 1, ?, ?, ?, 1, NULL)",
                (number, number, START + 1, START + ended, outcome),
            )
        for index, message in enumerate((*MESSAGES, REPEATED, INVENTED, DENIED)):
            _, data = serde.dumps_typed(message)
            self.db.execute("INSERT INTO items (id, kind, data) VALUES (?, 3, ?)", (index + 1, data))
        self.event(1, 1, "message", item=1)
        self.event(2, 1, "message", item=2)
        self.event(4, 2, "rewind", {"to_seq": 2, "reason": "recovered"})
        self.event(5, 2, "trace", {"node": "tools", "name": "slow_step", "step": 2, "phase": "result", "call_id": "c1"})
        self.event(6, 2, "message", item=3)
        self.event(8, 2, "message", item=4)
        self.event(9, 2, "end", {"status": "completed"})

    def event(self, seq: int, attempt: int, kind: str, payload: Any = None, item: int | None = None) -> None:
        text = None if payload is None else json.dumps(payload)
        self.db.execute(
            "INSERT INTO events VALUES ('C', ?, 'T', ?, ?, ?, ?, ?, NULL)",
            (seq, attempt, kind, START + 10 + seq * 3, item, text),
        )

    def effect(self, label: str, call: str, at: int, key: str | None = None) -> None:
        when = datetime.fromtimestamp(at / 1e6, UTC).isoformat()
        line = {"tool": "slow_step", "args": {"label": label}, "key": key or key_of(call), "at": when}
        with self.effects.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def call(self, effect_class: str, state: str = "settled", tool: str = "charge") -> None:
        """A call of the turn in the ledger, under the key `T-k`, with the arguments `{"label": "x"}`."""
        ended, status = (None, None) if state == "started" else (START + 30, "success")
        self.db.execute(
            "INSERT INTO tool_calls (key, turn, conversation, call_id, message_id, name, arguments, digest, effect_class,"
            " state, attempt, epoch, task, started_at, ended_at, status) VALUES ('T-k', 'T', 'C', 'c2', 'a', ?, ?, ?, ?,"
            " ?, 1, 1, 'task', ?, ?, ?)",
            (tool, '{"label": "x"}', digest_of({"label": "x"}), effect_class, state, START + 20, ended, status),
        )

    def card(self, decision: str, arguments: str = '{"label": "x"}', kind: str = "approval") -> None:
        """A decided card of that call."""
        self.db.execute(
            "INSERT INTO cards (id, turn, conversation, owner, interrupt_id, kind, request, state, decided_by, decided_at,"
            " opened_at, tool, arguments, digest, call_key, decision) VALUES ('d', 'T', 'C', 'o', 'i', ?, '{}', 'decided',"
            " 'ada', ?, ?, 'restart', ?, ?, 'T-k', ?)",
            (kind, START + 15, START + 12, arguments, digest_of(json.loads(arguments)), decision),
        )

    def happened(self, phase: str, tool: str = "charge", at: int = START + 21, key: str = "T-k") -> None:
        line = {"phase": phase, "tool": tool, "args": {"label": "x"}, "key": key, "at": at / 1e6}
        with self.effects.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def show(self) -> None:
        """The client saw the first attempt, a token of it, the reset, and the rest."""
        self.frame("message", 1, 1, message=wire_message(MESSAGES[0]))
        self.frame("message", 2, 1, message=wire_message(MESSAGES[1]))
        self.frame("token", 3, 1, message_id="lost", text="no")
        reset = {"conversation": "C", "turn": "T", "to_seq": 2, "attempt": 2, "reason": "recovered"}
        self.history.seen[0].take(SseFrame("reset", None, reset))
        self.frame("message", 1, 1, message=wire_message(MESSAGES[0]))
        self.frame("message", 2, 1, message=wire_message(MESSAGES[1]))
        self.frame("trace", 5, 2, node="tools", name="slow_step", step=2, phase="result", call_id="c1")
        self.frame("message", 6, 2, message=wire_message(MESSAGES[2]))
        self.frame("token", 7, 2, message_id="z", text="all do")
        self.frame("message", 8, 2, message=wire_message(MESSAGES[3]))
        self.frame("end", 9, 2, status="completed")

    def frame(self, event: str, seq: int, attempt: int, **payload: Any) -> None:
        at = datetime.fromtimestamp(START / 1e6, UTC).isoformat()
        envelope = {"seq": seq, "conversation": "C", "turn": "T", "attempt": attempt, "at": at}
        self.history.seen[0].take(SseFrame(event, seq, {**envelope, **payload}))

    def verdict(self) -> list[str]:
        self.db.close()
        return violations(self.history, self.database, self.effects)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_clean_run_passes(run: Run) -> None:
    assert run.verdict() == []


def sql(statement: str) -> Callable[[Run], object]:
    return lambda run: run.db.execute(statement).fetchall()


def unframed(seq: int | None) -> Callable[[Run], object]:
    """The client missed what carried this seq (None: the reset)."""

    def spoil(run: Run) -> None:
        kept = [frame for frame in run.connection.frames if frame.id != seq]
        run.history.seen[0] = Seen("C", [Connection(None)])
        for frame in kept:
            run.history.seen[0].take(frame)

    return spoil


def cleanly_closed_early(run: Run) -> None:
    del run.connection.frames[-1]
    run.connection.ending = "clean"


def started_twice(run: Run) -> None:
    run.call("once")
    run.happened("start")
    run.happened("start")


def done_twice(run: Run) -> None:
    run.call("keyed")
    run.happened("effect")
    run.happened("effect")


def booked_twice(run: Run) -> None:
    run.call("checkable")
    run.happened("effect")
    run.happened("effect")


def started_under_another_key(run: Run) -> None:
    run.call("read")
    run.happened("start")
    run.happened("start", key="T-other")


def started_unasked(run: Run) -> None:
    run.call("once", tool="restart")
    run.happened("start", "restart")


def started_before_it_was_approved(run: Run) -> None:
    run.call("once", tool="restart")
    run.card("approve")
    run.happened("start", "restart", START + 14)


def started_with_other_arguments(run: Run) -> None:
    run.call("once", tool="restart")
    run.card("approve", '{"label": "y"}')
    run.happened("start", "restart")


def decided_what_was_not_asked(run: Run) -> None:
    run.call("once", tool="restart")
    run.card("happened")


def a_result_is_missing(run: Run) -> None:
    shown = [wire_message(message) for message in (*MESSAGES[:2], MESSAGES[3])]
    run.history.transcripts["C"] = {"messages": shown, "turns": [{"id": "T", "status": "completed"}]}


SPOILED: dict[str, tuple[str, Callable[[Run], object]]] = {
    "an accepted message is gone": ("L", sql("DELETE FROM events; DELETE FROM turns")),
    "a turn nobody sent": ("L", lambda run: run.history.sent.clear()),
    "two messages, one turn": ("L", lambda run: run.history.sent.append(run.history.sent[0])),
    "no terminal event": ("E", sql("DELETE FROM events WHERE kind = 'end'")),
    "two terminal events": ("E", lambda run: run.event(10, 2, "end", {"status": "completed"})),
    "the message stored twice": ("E", lambda run: run.event(10, 2, "message", item=5)),
    "another answer": ("E", sql("UPDATE events SET item_id = 3 WHERE seq = 8")),
    "a client missed a message": ("F", unframed(6)),
    "a client missed what came twice": ("F", unframed(2)),
    "a client saw what was never committed": (
        "S",
        lambda run: run.frame("message", 11, 2, message={"id": "q", "role": "user"}),
    ),
    "one seq, two contents": ("S", sql('UPDATE events SET payload = \'{"status": "cancelled"}\' WHERE seq = 9')),
    "a seq came twice": ("S", lambda run: run.frame("end", 9, 2, status="completed")),
    "a new attempt without a rewind": ("R", sql("DELETE FROM events WHERE kind = 'rewind'")),
    "text of a lost attempt stays": ("F", unframed(None)),
    "an old attempt wrote late": ("P", sql("UPDATE events SET attempt = 1 WHERE seq = 8")),
    "an attempt wrote after its end": ("P", sql("UPDATE attempts SET ended_at = started_at WHERE epoch = 2")),
    "an attempt nobody claimed": ("P", sql("UPDATE events SET attempt = 3 WHERE seq = 9")),
    "an attempt without an outcome": ("B", sql("UPDATE attempts SET outcome = NULL, ended_at = NULL WHERE epoch = 1")),
    "attempts miscounted": ("A", sql("UPDATE turns SET attempts = 1")),
    "a death that never was": ("A", lambda run: run.history.boots.clear()),
    "declared dead while it lived": ("A", lambda run: setattr(run.history.boots[0], "ended_at", 2e9)),
    "a step executed after its result": ("X", lambda run: run.effect("one", "c1", START + 80)),
    "a step executed too often": (
        "X",
        lambda run: run.effects.write_text(run.effects.read_text() * 3),
    ),
    "a step under two keys": ("X", lambda run: run.effect("one", "c2", START + 16)),
    "a step that never happened": ("X", lambda run: run.effects.write_text("")),
    "a once call was started twice": ("X", started_twice),
    "a keyed call took effect twice": ("X", done_twice),
    "a checkable call took effect twice": ("X", booked_twice),
    "a call under two keys": ("X", started_under_another_key),
    "a call that the ledger does not know": ("X", lambda run: run.happened("start")),
    "a result of what never happened": ("X", sql("UPDATE events SET item_id = 6 WHERE seq = 6")),
    "a gated call that nobody approved": ("G", started_unasked),
    "a gated call that began before its approval": ("G", started_before_it_was_approved),
    "a denial that nobody gave": ("G", sql("UPDATE events SET item_id = 7 WHERE seq = 6")),
    "other arguments than approved": ("G", started_with_other_arguments),
    "a decision that the card does not take": ("G", decided_what_was_not_asked),
    "an uncertain call that nobody was asked about": ("V", lambda run: run.call("once", "started")),
    "a cancel forgotten at the next attempt": ("E", sql("UPDATE turns SET cancel_requested_at = 1")),
    "a call without a result": ("M", a_result_is_missing),
    "a stream that ended before the end": ("C", cleanly_closed_early),
}


@pytest.mark.parametrize("name", SPOILED)
def test_this_broken_promise_is_seen(run: Run, name: str) -> None:
    letter, spoil = SPOILED[name]
    spoil(run)
    found = run.verdict()
    assert any(violation.startswith(f"{letter}:") for violation in found), found
