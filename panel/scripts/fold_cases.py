"""Writes `src/fold/cases.json`: sequences of frames as they are on the wire, and what the server's own Fold makes of them.
The panel's reducer is tested against these. `python panel/scripts/fold_cases.py [--check]`."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perdure.events import Event, EventKind, Fold, FoldedTurn, Frame, Reset

TARGET = Path(__file__).parents[1] / "src" / "fold" / "cases.json"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RANDOM_CASES = 25

Case = tuple[str, Sequence[Frame]]


def event(seq: int, kind: EventKind, turn: str, payload: Mapping[str, Any]) -> Event:
    return Event(seq, "c1", turn, 1, kind, NOON + timedelta(seconds=seq), payload)


def token(seq: int, text: str, message: str = "m1", turn: str = "t1") -> Event:
    return event(seq, EventKind.TOKEN, turn, {"message_id": message, "text": text})


def message(seq: int, name: str, content: str, turn: str = "t1", **more: str) -> Event:
    said = {"id": name, "role": "assistant", "content": content, **more}
    return event(seq, EventKind.MESSAGE, turn, {"message": said})


def trace(seq: int, phase: str, turn: str = "t1") -> Event:
    return event(seq, EventKind.TRACE, turn, {"node": "tools", "name": "tools", "step": 1, "phase": phase})


def card(seq: int, state: str, turn: str = "t1") -> Event:
    return event(seq, EventKind.APPROVAL, turn, {"card": "k1", "kind": "approval", "state": state, "tool": "restart"})


def end(seq: int, turn: str = "t1") -> Event:
    return event(seq, EventKind.END, turn, {"status": "completed"})


def failed(seq: int, turn: str = "t1") -> Event:
    said = {"code": "RECURSION_LIMIT", "reason": "step_limit", "message": "The limit is reached."}
    return event(seq, EventKind.CHAT_ERROR, turn, {"status": "failed", **said})


def rewind(seq: int, turn: str = "t1") -> Event:
    return event(seq, EventKind.REWIND, turn, {"to_seq": 2, "reason": "recovered"})


def reset(to_seq: int, turn: str = "t1", attempt: int = 2) -> Reset:
    return Reset("c1", turn, to_seq, attempt, "recovered")


def named() -> Iterator[Case]:
    spoken = [message(1, "h", "hi", role="user"), token(2, "Hel"), token(3, "lo"), message(4, "m1", "Hello"), end(5)]
    yield "nothing", []
    yield "an answer", spoken
    yield "an answer half way", spoken[:3]
    yield "each seq once", [*spoken[:3], *spoken[1:4], spoken[3]]
    yield "a message replaces its own tokens alone", [token(1, "a", "m1"), token(2, "b", "m2"), message(3, "m1", "A")]
    yield "unreplaced tokens go with the end", [*spoken[:3], end(4)]
    yield "unreplaced tokens go with an error", [*spoken[:3], failed(4)]
    yield "a rewind is nothing to a watcher", [*spoken[:3], rewind(4)]
    yield (
        "a reset empties the turn and what was seen of it",
        [*spoken[:3], reset(1), spoken[0], token(6, "Again", "m9")],
    )
    yield "a reset leaves other turns", [message(1, "m0", "x", "t0"), *spoken[1:3], reset(1)]
    yield "a removed message", [message(1, "m1", "x"), message(2, "m1", "", status="removed")]
    yield (
        "a removed message that comes again is the last",
        [
            message(1, "m1", "x"),
            message(2, "m2", "y"),
            message(3, "m1", "", status="removed"),
            message(4, "m1", "z"),
        ],
    )
    yield (
        "a message that changes keeps its place",
        [message(1, "m1", "x"), message(2, "m2", "y"), message(3, "m1", "z")],
    )
    yield "cards and traces", [trace(1, "enter"), card(2, "opened"), card(3, "decided"), trace(4, "leave")]
    yield "an ending after a resume", [failed(5), reset(4), token(7, "more"), message(8, "m1", "more"), end(9)]
    yield "two turns side by side", [token(1, "a"), end(2, "t2"), token(3, "b"), message(4, "m1", "ab")]


def arbitrary(seed: int) -> Case:
    """A shuffled history with repeats and resets: not what a server sends, but the reducers must agree on it."""
    chance = random.Random(seed)  # noqa: S311  (cases, not secrets)
    return f"arbitrary {seed}", [_any_frame(chance) for _ in range(chance.randint(5, 25))]


def _any_frame(chance: random.Random) -> Frame:
    seq, turn, name = chance.randint(1, 30), chance.choice(["t1", "t2"]), chance.choice(["m1", "m2", "m3"])
    frames: list[Frame] = [
        token(seq, f"<{seq}>", name, turn),
        message(seq, name, f"said {seq}", turn),
        message(seq, name, "", turn, status="removed"),
        trace(seq, "enter", turn),
        card(seq, "opened", turn),
        end(seq, turn),
        failed(seq, turn),
        rewind(seq, turn),
        reset(seq, turn),
    ]
    return chance.choice(frames)


def wire(frame: Frame) -> dict[str, Any]:
    return {"event": "reset" if isinstance(frame, Reset) else str(frame.kind), "data": frame.wire()}


def folded(turn: FoldedTurn) -> dict[str, Any]:
    return {
        "messages": list(turn.messages.items()),
        "tokens": list(turn.tokens.items()),
        "traces": [dict(each) for each in turn.traces],
        "approvals": list(turn.approvals.items()),
        "ending": turn.ending,
        "seen": sorted(turn.seen),
    }


def text() -> str:
    cases = [*named(), *(arbitrary(seed) for seed in range(RANDOM_CASES))]
    written = [
        {
            "name": name,
            "frames": [wire(frame) for frame in frames],
            "turns": {turn_id: folded(turn) for turn_id, turn in Fold().apply_all(frames).turns.items()},
        }
        for name, frames in cases
    ]
    lines = ",\n".join(json.dumps(each, sort_keys=True, default=dict) for each in written)
    return f"[\n{lines}\n]\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the file is not what the server folds")
    if not parser.parse_args().check:
        TARGET.write_text(text())
        return 0
    if TARGET.read_text() == text():
        return 0
    print(f"{TARGET} is not what the server folds; run: python panel/scripts/fold_cases.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
