"""Compares three independent records: what clients received, what the database holds, what the outside world saw.

`violations` returns sentences, one per broken promise; an empty list is the only pass. Letters refer to docs/durability.md:
E endings, L nothing lost, F folds, R rewinds, S seqs, P epochs, B busy threads, X effects, A attempts, D database, C clean closes,
M threads valid for a model; `calls.py` adds G decisions and V uncertain calls.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from perdure.events import Event, EventKind, Fold, Reset
from tests.crash import world
from tests.crash.calls import call_violations, keyed_results
from tests.crash.client import Connection, Seen, SseFrame
from tests.crash.fold import FoldedView, View
from tests.crash.journal import Journal, Row, read_journal
from tests.crash.records import Effect, History, Sent, read_effects
from tests.strict import from_wire, problems

ENDED = {"completed", "failed", "cancelled", "interrupted"}
TERMINAL_KINDS = {"end", "chat-error"}
COUNTED = {"died", "failed", "cancelled", "completed", "retried", "parked", None}


def violations(history: History, database: Path, effects: Path) -> list[str]:
    """Every broken promise of one finished run, all servers stopped."""
    journal = read_journal(database)
    found: list[str] = []
    for check in (
        _database,
        _nothing_lost,
        _endings,
        _answers,
        _threads,
        _folds,
        _leftovers,
        _rewinds,
        _seqs,
        _epochs,
        _busy,
        _attempts,
        _closes,
    ):
        found += check(history, journal)
    found += _effects(history, journal, read_effects(effects))
    found += call_violations(history, journal, list(world.read(effects)))
    return found


# -- D: the file -------------------------------------------------------------------------------------------------------


def _database(history: History, journal: Journal) -> Iterator[str]:
    if journal.integrity != "ok":
        yield f"D: integrity_check says {journal.integrity}"
    for row in journal.dangling:
        yield f"D: a row refers to nothing: {dict(row)}"


# -- L: nothing accepted is lost, nothing unsaid is answered -------------------------------------------------------------


def _nothing_lost(history: History, journal: Journal) -> Iterator[str]:
    for sent in history.sent:
        if sent.turn is not None and sent.turn not in journal.turns:
            yield f"L: {sent.text!r} was accepted as {sent.turn} and is not in the journal"
    accepted = Counter(sent.turn for sent in history.sent if sent.turn is not None)
    for turn, count in accepted.items():
        if count > 1:
            yield f"L: {count} messages were answered with the same turn {turn}"
    unheard = sum(1 for sent in history.sent if sent.turn is None)
    surplus = [turn for turn in journal.turns if turn not in accepted]
    if len(surplus) > unheard:
        yield f"L: {len(surplus)} turns {surplus} without a 202, but only {unheard} requests without an answer"


# -- E: exactly one ending, exactly one answer --------------------------------------------------------------------------


def _endings(history: History, journal: Journal) -> Iterator[str]:
    for sent, turn in _accepted(history, journal):
        status = turn["status"]
        allowed = set(sent.expected.endings)
        if sent.turn in history.cancels:
            allowed |= {"cancelled"}
        if sent.exhaustible:
            allowed |= {"failed"}
        if status not in allowed:
            code = f" ({turn['failure_code']}: {turn['failure_message']})" if turn["failure_code"] else ""
            yield f"E: {sent.text!r} ({turn['id']}) is {status}{code}, expected {sorted(allowed)}"
        if status == "failed" and not sent.exhaustible and turn["failure_code"] not in sent.expected.codes:
            yield f"E: {sent.text!r} ({turn['id']}) failed with {turn['failure_code']}, expected {set(sent.expected.codes)}"
        endings = [row for row in journal.events if row["turn"] == turn["id"] and row["kind"] in TERMINAL_KINDS]
        base = 1 if status in ENDED else 0
        wanted = range(base + history.resumes[turn["id"]], base + _resumes(history, turn["id"]) + 1)
        if len(endings) not in wanted:
            yield f"E: {turn['id']} has {len(endings)} terminal events, expected {wanted}"
        retained = [row for row in endings if row["dropped_by"] is None]
        if status in ENDED and [row["payload"]["status"] for row in retained] != [status]:
            yield f"E: {turn['id']} is {status} and retains the endings {[row['payload'] for row in retained]}"


def _resumes(history: History, turn: str) -> int:
    """At most so many resumes counted."""
    return max(history.resumes[turn], history.resume_tries[turn])


def _answers(history: History, journal: Journal) -> Iterator[str]:
    for sent, turn in _accepted(history, journal):
        if turn["status"] != "completed":
            continue
        view = _journal_view(journal, turn["id"])
        said = _said(view)
        asked = [message["content"] for message in view.messages.values() if message["role"] == "user"]
        if asked != [sent.text]:
            yield f"E: {turn['id']} holds the user messages {asked}, expected exactly {sent.text!r}"
        if not said:
            yield f"E: {turn['id']} completed without an answer"
        elif sent.expected.answer is not None and said[-1]["content"] != sent.expected.answer:
            yield f"E: {turn['id']} answered {said[-1]['content']!r}, expected {sent.expected.answer!r}"
        count = sent.expected.assistant_messages
        if count is not None and len(said) != count:
            yield f"E: {turn['id']} has {len(said)} assistant messages, expected {count}"


def _said(view: FoldedView) -> list[dict[str, Any]]:
    """Assistant messages after the turn's own message; before it stands what its repair recorded of an earlier turn."""
    messages = list(view.messages.values())
    own = next((place for place, message in enumerate(messages) if message["role"] == "user"), 0)
    return [message for message in messages[own:] if message["role"] == "assistant"]


# -- M: a thread that a model server takes ---------------------------------------------------------------------------------


def _threads(history: History, journal: Journal) -> Iterator[str]:
    """Each call has exactly one result, directly behind its message; those of a turn that did not end may be missing."""
    for conversation, transcript in history.transcripts.items():
        turns = [row["status"] for row in journal.turns.values() if row["conversation"] == conversation]
        unfinished = bool(turns) and turns[-1] not in {"completed", "cancelled"}
        said = [from_wire(message) for message in transcript["messages"]]
        yield from (f"M: {conversation}: {problem}" for problem in problems(said, unfinished=unfinished))


# -- F: folds -------------------------------------------------------------------------------------------------------------


def _folds(history: History, journal: Journal) -> Iterator[str]:
    for seen in history.seen:
        yield from _watched(seen, journal)
    for conversation, transcript in history.transcripts.items():
        yield from _transcript(conversation, transcript, journal)


def _watched(seen: Seen, journal: Journal) -> Iterator[str]:
    reference = Fold().apply_all(filter(None, (_frame(frame) for frame in seen.frames)))
    for turn, view in seen.view.turns.items():
        if turn not in journal.turns:
            yield f"F: a client of {seen.conversation} saw turn {turn}, which the journal does not know"
            continue
        folded = reference.turns[turn]
        if list(folded.messages.values()) != list(view.messages.values()) or folded.traces != view.traces:
            yield f"F: the product's fold and the suite's own differ for {turn}"
        if view.ending is None and journal.turns[turn]["status"] in ENDED:
            continue  # the client left before the end; what it had seen is held against the journal by seq
        if _came_late(seen, turn):
            continue  # it asked without a cursor after the end and was told the end alone
        expected = _journal_view(journal, turn).comparable()
        shown = view.comparable()
        yield from (
            f"F: {turn}: a client shows {name} = {_short(shown[name])}, the journal {_short(expected[name])}"
            for name in shown
            if shown[name] != expected[name]
        )


def _came_late(seen: Seen, turn: str) -> bool:
    """A reset that was cut off before anything followed it leaves no cursor: who comes again comes anew."""
    first = next(frame for frame in seen.frames if frame.data.get("turn") == turn and frame.id is not None)
    return first.event in TERMINAL_KINDS and any(
        connection.cursor is None and first in connection.frames for connection in seen.connections
    )


def _leftovers(history: History, journal: Journal) -> Iterator[str]:
    """Text of an attempt that is over must be gone (by a reset, or replaced by its message) before a later one speaks."""
    for seen in history.seen:
        speaking: dict[str, dict[str, int]] = defaultdict(dict)
        for frame in seen.frames:
            turn, attempt = frame.data.get("turn", ""), frame.data.get("attempt", 0)
            if frame.event == "reset" or frame.event in TERMINAL_KINDS:
                speaking[turn].clear()
            elif frame.event == "message":
                speaking[turn].pop(frame.data["message"]["id"], None)
            elif frame.event == "token":
                speaking[turn].setdefault(frame.data["message_id"], attempt)
            if any(0 < before < attempt for before in speaking[turn].values()):
                yield f"F: {turn}: a client still shows text of an earlier attempt at seq {frame.id} of attempt {attempt}"
                break


def _rewinds(history: History, journal: Journal) -> Iterator[str]:
    """Every attempt but the first, and those after a park, starts with a rewind; no call is told twice."""
    rewound = {(row["turn"], row["attempt"]) for row in journal.events if row["kind"] == "rewind"}
    for turn, attempts in _known(journal):
        for before, after in pairwise(attempts):
            if before["outcome"] != "parked" and (turn, after["epoch"]) not in rewound:
                yield f"R: attempt {after['epoch']} of {turn} follows a {before['outcome']} one without a rewind"
        traces = [row["payload"] for row in journal.retained(turn) if row["kind"] == "trace"]
        calls = Counter((trace["step"], trace["call_id"]) for trace in traces if trace["phase"] == "call")
        # A call that was cut keeps its first start when a sibling's result was committed after it.
        again = _cuts(attempts) + sum(
            1 for card in journal.cards if (card["turn"], card["decision"]) == (turn, "retry")
        )
        for (step, call), count in calls.items():
            if count > 1 + again:
                yield f"R: {turn} retains {count} starts of the call {call} of step {step}, which was to run {again} times again"


def _cuts(attempts: Sequence[Row]) -> int:
    return sum(1 for row in attempts if row["outcome"] in {"died", "released", "retried", "cancelled", "failed"})


def _transcript(conversation: str, transcript: Mapping[str, Any], journal: Journal) -> Iterator[str]:
    turns = [row["id"] for row in journal.turns.values() if row["conversation"] == conversation]
    told: dict[str, Any] = {}
    for turn in turns:
        told.update(_journal_view(journal, turn).messages)
    shown = {message["id"]: message for message in transcript["messages"]}
    if list(shown.values()) != list(told.values()):
        yield f"F: {conversation}: the API shows {_short(list(shown.values()))}, the journal folds to {_short(list(told.values()))}"
    statuses = {row["id"]: row["status"] for row in transcript["turns"]}
    if statuses != {turn: journal.turns[turn]["status"] for turn in turns}:
        yield f"F: {conversation}: the API shows the turns {statuses}"


def _journal_view(journal: Journal, turn: str) -> FoldedView:
    view = View()
    for row in journal.retained(turn):
        if row["kind"] != "rewind":
            view.apply(row["kind"], _wire(row))
    return view.turn(turn)


def _wire(row: Row) -> dict[str, Any]:
    return {
        "seq": row["seq"],
        "conversation": row["conversation"],
        "turn": row["turn"],
        "attempt": row["attempt"],
        "at": row["at"],
        **row["payload"],
    }


def _frame(frame: SseFrame) -> Event | Reset | None:
    data = frame.data
    if frame.event == "reset":
        return Reset(data["conversation"], data["turn"], data["to_seq"], data["attempt"], data["reason"])
    if frame.event == "ping" or "seq" not in data:
        return None
    envelope = {"seq", "conversation", "turn", "attempt", "at"}
    payload = {name: value for name, value in data.items() if name not in envelope}
    at = datetime.fromisoformat(data["at"])
    return Event(data["seq"], data["conversation"], data["turn"], data["attempt"], EventKind(frame.event), at, payload)


# -- S: seqs ----------------------------------------------------------------------------------------------------------------


def _seqs(history: History, journal: Journal) -> Iterator[str]:
    stored: dict[tuple[str, int], str] = {}
    for row in journal.events:
        if row["kind"] != "rewind":
            stored[row["conversation"], row["seq"]] = _content(row["kind"], _wire(row))
    sighted: dict[tuple[str, int], str] = dict(stored)
    for seen in history.seen:
        for connection in seen.connections:
            yield from _rising(seen, connection)
            for frame in connection.frames:
                if frame.id is None:
                    continue
                place = (seen.conversation, frame.id)
                content = _content(frame.event, frame.data)
                if sighted.setdefault(place, content) != content:
                    yield f"S: seq {frame.id} of {seen.conversation} is {_short(content)} and {_short(sighted[place])}"
                if frame.event != "token" and place not in stored:
                    yield f"S: a client saw seq {frame.id} of {seen.conversation}, which was never committed: {_short(content)}"


def _rising(seen: Seen, connection: Connection) -> Iterator[str]:
    last = connection.cursor if connection.cursor is not None else 0
    for frame in connection.frames:
        if frame.event == "reset":
            last = 0
        elif frame.id is not None:
            if frame.id != frame.data["seq"]:
                yield f"S: the frame id {frame.id} is not the seq {frame.data['seq']}"
            if frame.id <= last:
                yield f"S: {seen.conversation}: seq {frame.id} came after {last} on one connection"
            last = frame.id


def _content(kind: str, data: Mapping[str, Any]) -> str:
    """What must never differ between two sightings of one seq."""
    return json.dumps([kind, {name: data[name] for name in data if name != "at"}], sort_keys=True)


# -- P: no write carries an old epoch ------------------------------------------------------------------------------------------


def _epochs(history: History, journal: Journal) -> Iterator[str]:
    newest: dict[str, tuple[int, int]] = {}
    for row in journal.events:
        attempt = row["attempt"]
        if not attempt:
            continue
        before, seq = newest.get(row["turn"], (0, 0))
        if attempt < before:
            yield f"P: {row['turn']}: attempt {attempt} wrote seq {row['seq']} after attempt {before} had written {seq}"
        newest[row["turn"]] = (max(before, attempt), row["seq"])
    for turn, attempts in _known(journal):
        epochs = [row["epoch"] for row in attempts]
        if epochs != sorted(set(epochs)) or epochs[-1] != journal.turns[turn]["epoch"]:
            yield f"P: {turn} has the epochs {epochs} and stands at {journal.turns[turn]['epoch']}"
        written = newest.get(turn, (0, 0))[0]
        if written > max(row["number"] for row in attempts):
            yield f"P: {turn} has events of attempt {written}, which was never claimed"
        for claimed in attempts:
            yield from _late_events(claimed, journal)


def _late_events(attempt: Row, journal: Journal) -> Iterator[str]:
    if attempt["ended_at"] is None:
        return
    for row in journal.events:
        same = row["turn"] == attempt["turn"] and row["attempt"] == attempt["number"]
        if same and row["at"] > attempt["ended_at"]:
            yield f"P: {row['turn']}: attempt {row['attempt']} wrote seq {row['seq']} after it had ended"


# -- B: no thread is busy without a live turn -------------------------------------------------------------------------------------


def _busy(history: History, journal: Journal) -> Iterator[str]:
    for row in journal.turns.values():
        if row["status"] in {"running", "queued", "waiting"}:
            yield f"B: {row['id']} is {row['status']} after all had come to rest"
    for turn, attempts in _known(journal):
        for attempt in attempts:
            if attempt["outcome"] is None:
                yield f"B: attempt {attempt['number']} of {turn} has no outcome"
    for card in journal.cards:
        if card["state"] == "opened" and journal.turns[card["turn"]]["status"] != "parked":
            yield f"B: card {card['id']} is open and its turn {card['turn']} is {journal.turns[card['turn']]['status']}"


# -- A: attempts ---------------------------------------------------------------------------------------------------------------------


def _attempts(history: History, journal: Journal) -> Iterator[str]:
    unplanned = sum(1 for boot in history.boots if boot.how and boot.how != "stopped") + history.pauses
    for turn, attempts in _known(journal):
        row = journal.turns[turn]
        counted = [one for one in attempts if one["outcome"] != "released"]
        if not len(counted) - _asking(attempts) <= row["attempts"] <= len(counted):
            yield f"A: {turn} counts {row['attempts']} attempts; {len(counted)} were claimed and not handed over"
        died = sum(1 for one in attempts if one["outcome"] == "died")
        if not history.pauses:
            yield from _deaths(history, turn, attempts)
        if died > unplanned:
            yield f"A: {died} attempts of {turn} died, but the process died only {unplanned} times"
        decided = sum(1 for card in journal.cards if card["turn"] == turn and card["state"] == "decided")
        answers = max(history.answers[turn], decided)
        allowed = 1 + died + _resumes(history, turn) + answers + 2 * (turn in history.cancels)
        retried = sum(1 for one in attempts if one["outcome"] == "retried")
        if len(counted) > allowed + retried:
            yield f"A: {turn} took {len(counted)} attempts for {died} deaths, {_resumes(history, turn)} resumes, {answers} answers"
    for sent, row in _accepted(history, journal):
        if row["failure_code"] == "ATTEMPTS_EXHAUSTED":
            fruitless = _fruitless(journal.attempts.get(row["id"], []))
            if fruitless < 3 and not history.resumes[sent.turn or ""]:
                yield f"A: {row['id']} was given up after {fruitless} attempts in a row without progress"


def _asking(attempts: Sequence[Row]) -> int:
    """How many attempts may have been claimed only to ask what became of a call, which is not counted: without progress of
    their own, after two or more without progress."""
    found = fruitless = 0
    for row in attempts:
        found += fruitless >= 2 and not row["progressed"] and row["outcome"] != "released"
        if row["outcome"] != "released":
            fruitless = 0 if row["progressed"] else fruitless + 1
    return found


def _deaths(history: History, turn: str, attempts: Sequence[Row]) -> Iterator[str]:
    """An attempt may be declared dead only after its process is."""
    ended = {str(boot.pid): boot.ended_at for boot in history.boots}
    for row in attempts:
        death = ended.get(row["owner"].split(":")[1])
        if row["outcome"] == "died" and (death is None or row["ended_at"] / 1e6 < death):
            yield f"A: attempt {row['number']} of {turn} was declared dead while its process lived"


def _fruitless(attempts: Any) -> int:
    """How many attempts at the end made no progress (handed over ones do not count)."""
    count = 0
    for row in attempts:
        if row["progressed"]:
            count = 0
        elif row["outcome"] in COUNTED:
            count += 1
    return count


# -- X: effects -------------------------------------------------------------------------------------------------------------------------


def _effects(history: History, journal: Journal, effects: list[Effect]) -> Iterator[str]:
    by_key: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_key[effect.key].append(effect)
    results = keyed_results(journal)
    for key, executions in by_key.items():
        turn = executions[0].turn
        if turn not in journal.turns:
            yield f"X: an effect under {key} belongs to no turn"
            continue
        cuts = _cuts(journal.attempts[turn])
        if len(executions) > 1 + cuts:
            yield f"X: {key} was executed {len(executions)} times, but only {cuts} attempts were cut"
        recorded = results.get(key)
        late = [effect.at for effect in executions if recorded is not None and effect.at > recorded]
        if late:
            yield f"X: {key} was executed at {late} after its result was recorded at {recorded}"
    for sent, row in _accepted(history, journal):
        if row["status"] == "completed" and sent.expected.labels:
            yield from _complete(sent, row["id"], by_key)


def _complete(sent: Sent, turn: str, by_key: Mapping[str, list[Effect]]) -> Iterator[str]:
    keys: dict[str, set[str]] = defaultdict(set)
    for key, executions in by_key.items():
        if executions[0].turn == turn:
            keys[executions[0].label].add(key)
    if set(keys) != set(sent.expected.labels):
        yield f"X: {turn} completed with effects of {sorted(keys)}, expected {sorted(sent.expected.labels)}"
    for label, different in keys.items():
        if len(different) > 1:
            yield f"X: {turn}: the step {label} was executed under {len(different)} keys: {sorted(different)}"


# -- C: a clean close means the end ---------------------------------------------------------------------------------------------------------


def _closes(history: History, journal: Journal) -> Iterator[str]:
    for seen in history.seen:
        for connection in seen.connections:
            if connection.ending != "clean":
                continue
            last = next((frame.event for frame in reversed(connection.frames) if frame.id is not None), None)
            if last not in TERMINAL_KINDS and connection.frames:
                yield f"C: the server closed a stream of {seen.conversation} cleanly after a {last}"


def _known(journal: Journal) -> Iterator[tuple[str, Sequence[Row]]]:
    """Attempts of turns that exist; the others are told by `_database`."""
    return ((turn, attempts) for turn, attempts in journal.attempts.items() if turn in journal.turns)


def _accepted(history: History, journal: Journal) -> Iterator[tuple[Sent, Row]]:
    for sent in history.sent:
        if sent.turn is not None and sent.turn in journal.turns:
            yield sent, journal.turns[sent.turn]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 400 else f"{text[:400]}…"
