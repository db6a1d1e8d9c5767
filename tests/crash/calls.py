"""The oracle of tool calls: the ledger and the decisions in the database, held against what the outside world saw.

X effects, G decisions (what ran is what was approved, and nobody else's word), V uncertain calls (shown, never hidden).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.effects import digest_of
from perdure.ledger import ToolCall, idempotency_key
from tests.crash.journal import Journal, Row
from tests.crash.records import History, seconds
from tests.crash.world import Happening

GATED = frozenset({"restart", "restart_service"})
"""Tools that the suite's agents ask a person about."""

KINDS = {
    "approval": {"approve", "deny"},
    "uncertain": {"happened", "retry", "give_up"},
    "interrupt": {"answer"},
}

ByKey = Mapping[str, Sequence[Happening]]


def call_violations(history: History, journal: Journal, world: Sequence[Happening]) -> Iterator[str]:
    starts, effects = _by_key(world, "start"), _by_key(world, "effect")
    yield from _recorded_first(journal, starts)
    yield from _repeated(journal, starts, effects)
    yield from _one_key_each(journal, starts)
    yield from _approved(journal, starts)
    yield from _decisions(journal)
    yield from _shown(journal)
    yield from _told(history, journal, starts, effects)
    yield from _cancelled(journal)


def _by_key(world: Sequence[Happening], phase: str) -> dict[str, list[Happening]]:
    found: dict[str, list[Happening]] = defaultdict(list)
    for each in world:
        if each.phase == phase:
            found[each.key].append(each)
    return found


# -- X: effects --------------------------------------------------------------------------------------------------------


def _recorded_first(journal: Journal, starts: ByKey) -> Iterator[str]:
    for key, arrivals in starts.items():
        if key not in journal.calls:
            yield f"X: {arrivals[0].tool} {arrivals[0].label} was started under {key!r}, of which the ledger knows nothing"


def _repeated(journal: Journal, starts: ByKey, effects: ByKey) -> Iterator[str]:
    """A `once` call is started once and once more for each person's `retry`; what has a key of its own happens once."""
    for key, call in journal.calls.items():
        name, kind = f"{call['name']} ({key})", call["effect_class"]
        allowed = 1 + sum(1 for card in _cards(journal, key, "uncertain") if card["decision"] == "retry")
        for what, times in (("started", len(starts.get(key, ()))), ("done", len(effects.get(key, ())))):
            if kind == "once" and times > allowed:
                yield f"X: the once call {name} was {what} {times} times; people's word allowed {allowed}"
        if kind in {"keyed", "checkable"} and len(effects.get(key, ())) > 1:
            yield f"X: the {kind} call {name} took effect {len(effects[key])} times"


def _one_key_each(journal: Journal, starts: ByKey) -> Iterator[str]:
    """Labels are unique within a turn, so two keys for one of them are two calls where the model made one."""
    keys: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for key, arrivals in starts.items():
        for each in arrivals:
            keys[key.rpartition("-")[0], each.tool, each.label].add(key)
    for (turn, tool, label), different in keys.items():
        if len(different) > 1 and _said_once(journal, turn, label):
            yield f"X: {turn}: {tool} {label} ran under {len(different)} keys: {sorted(different)}"


def _said_once(journal: Journal, turn: str, label: str) -> bool:
    """Whether the model's committed answers ask for it once (a script may name a label twice)."""
    asked = [call for message in _messages(journal, turn) for call in message.get("tool_calls", ())]
    return sum(1 for call in asked if call["args"].get("label") == label) <= 1


def keyed_results(journal: Journal) -> dict[str, float]:
    """When each call's result was first committed, Unix seconds, by idempotency key."""
    found: dict[str, float] = {}
    for turn in journal.turns:
        for row, key in _results(journal, turn):
            found.setdefault(key, seconds(row["at"] / 1e6))
    return found


# -- G: decisions ------------------------------------------------------------------------------------------------------


def _approved(journal: Journal, starts: ByKey) -> Iterator[str]:
    for key, arrivals in starts.items():
        for each in arrivals:
            if each.tool not in GATED:
                continue
            granted = [card for card in _cards(journal, key, "approval") if card["decision"] == "approve"]
            if not granted:
                yield f"G: {each.tool} {each.label} was started and nobody had approved it"
            elif not any(_fits(card, each) for card in granted):
                yield f"G: {each.tool} was started with {dict(each.arguments)}, which is not what was approved"


def _fits(card: Row, started: Happening) -> bool:
    """Approved before it started, with exactly these arguments."""
    edited = card["decided_arguments"]
    digest = digest_of(json.loads(edited)) if edited else card["digest"]
    return bool(digest == digest_of(started.arguments) and card["decided_at"] / 1e6 <= started.at)


def _decisions(journal: Journal) -> Iterator[str]:
    for card in journal.cards:
        if card["state"] != "decided":
            continue
        if card["decision"] not in KINDS[card["kind"]]:
            yield f"G: the {card['kind']} card {card['id']} was decided as {card['decision']}"
        if not card["decided_by"]:
            yield f"G: nobody decided card {card['id']}"
        if card["kind"] != "interrupt" and card["digest"] != digest_of(json.loads(card["arguments"])):
            yield f"G: card {card['id']} shows arguments that its digest is not of"


# -- V: uncertain calls ------------------------------------------------------------------------------------------------


def _shown(journal: Journal) -> Iterator[str]:
    """A turn that completed has no `once` call whose outcome nobody knows and nobody was asked about."""
    for key, call in journal.calls.items():
        turn = journal.turns.get(call["turn"])
        uncertain = call["effect_class"] == "once" and call["state"] == "started"
        if turn is None or not uncertain or turn["status"] not in {"completed", "cancelled"} or turn["discards_cards"]:
            continue
        if not any(card["state"] == "decided" for card in _cards(journal, key, "uncertain")):
            yield f"V: {turn['id']} is {turn['status']}, and nobody was asked what became of {call['name']} ({key})"


def _told(history: History, journal: Journal, starts: ByKey, effects: ByKey) -> Iterator[str]:
    """What the thread says of a call is true."""
    for turn in journal.turns:
        for row, key in _tool_messages(journal, turn):
            message = row["payload"]["message"]
            text, status = str(message["content"]), message.get("status")
            if text.endswith(": done") and not effects.get(key):
                yield f"X: the thread says {text!r} of {key}, and it never happened"
            if status == "denied" and starts.get(key):
                yield f"G: {key} was denied, and it was started"
            if status == "denied" and not any(card["decision"] == "deny" for card in _cards(journal, key, "approval")):
                yield f"G: the thread says that {key} was denied, and nobody denied it"
            if "not started" in text and starts.get(key):
                yield f"X: the thread says {text!r} of {key}, which was started"


def _cancelled(journal: Journal) -> Iterator[str]:
    """A cancel accepted before an attempt began is honoured by it: it does not complete the turn."""
    for turn, attempts in journal.attempts.items():
        row = journal.turns.get(turn)
        if row is None or row["status"] != "completed" or row["cancel_requested_at"] is None:
            continue
        if any(attempt["started_at"] > row["cancel_requested_at"] for attempt in attempts):
            yield f"E: {turn} was to be cancelled before its last attempt began, and completed"


# -- reading -----------------------------------------------------------------------------------------------------------


def _cards(journal: Journal, key: str, kind: str) -> list[Row]:
    return [card for card in journal.cards if card["kind"] == kind and card["call_key"] == key]


def _messages(journal: Journal, turn: str) -> list[Mapping[str, Any]]:
    return [row["payload"]["message"] for row in journal.events if row["turn"] == turn and row["kind"] == "message"]


def _tool_messages(journal: Journal, turn: str) -> Iterator[tuple[Row, str]]:
    """Each committed tool message of a turn with its call's key."""
    return ((row, key) for row, key in _results(journal, turn) if row["kind"] == "message")


def _results(journal: Journal, turn: str) -> Iterator[tuple[Row, str]]:
    """Each event that tells a call's result, with the call's key: it is of the nearest assistant message that made it."""
    owners: dict[str, ToolCall] = {}
    for row in journal.events:
        if row["turn"] != turn or row["kind"] not in {"message", "trace"}:
            continue
        told = row["payload"].get("message", {})
        for call in told.get("tool_calls", ()):
            owners[call["id"]] = ToolCall(call["id"], call["name"], call["args"], told["id"])
        phase = row["payload"].get("phase")
        answered = row["payload"].get("call_id") if phase == "result" else told.get("tool_call_id")
        owner = owners.get(answered or "")
        if owner is not None:
            yield row, idempotency_key(turn, owner)
