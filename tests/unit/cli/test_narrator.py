"""What a terminal shows of a turn: each thing once, whatever was replayed."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from perdure.cli.client import Line
from perdure.cli.narrator import Narrator
from perdure.events import Event, EventKind, Reset

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(seq: int, kind: EventKind, **payload: Any) -> Event:
    return Event(seq, "c", "t", 1, kind, AT, payload)


def said(seq: int, text: str, identity: str = "m") -> Event:
    return event(seq, EventKind.MESSAGE, message={"id": identity, "role": "assistant", "content": text})


def narrator(*, live: bool = True) -> tuple[Narrator, io.StringIO, io.StringIO]:
    out, notes = io.StringIO(), io.StringIO()
    return Narrator(out, Console(file=notes, width=200), live=live), out, notes


def test_streamed_text_is_completed_by_its_message_not_repeated() -> None:
    shown, out, _ = narrator()
    for frame in (
        event(1, EventKind.TOKEN, message_id="m", text="Hel"),
        event(2, EventKind.TOKEN, message_id="m", text="lo"),
        said(3, "Hello!"),
        event(4, EventKind.END, status="completed"),
    ):
        shown.show(frame)
    assert out.getvalue() == "Hello!\n"
    assert shown.answer("t") == "Hello!"


def test_a_reset_draws_a_thin_line_and_what_was_shown_complete_is_not_shown_again() -> None:
    shown, out, notes = narrator()
    shown.show(said(1, "First.", "a"))
    shown.show(event(2, EventKind.TOKEN, message_id="b", text="Seco"))
    shown.show(Line("lost"))
    shown.show(Line("back"))
    shown.show(Reset("c", "t", 1, 2, "recovered"))
    shown.show(said(1, "First.", "a"))
    shown.show(event(3, EventKind.TOKEN, message_id="b2", text="Second."))
    shown.show(said(4, "Second.", "b2"))
    assert out.getvalue() == "First.\nSeco\nSecond.\n"
    assert "resumed after a crash" in notes.getvalue() and "reconnecting" in notes.getvalue()
    assert shown.answer("t") == "First.\n\nSecond."


def test_a_planned_restart_is_called_a_restart_and_a_mere_reconnect_is_not_told() -> None:
    shown, _, notes = narrator()
    shown.show(Reset("c", "t", 1, 2, "released"))
    shown.show(Reset("c", "t", 1, 2, "reconnected"))
    assert notes.getvalue().count("──") == 2 and "resumed after a restart" in notes.getvalue()


def test_text_that_would_steer_the_terminal_is_made_harmless() -> None:
    shown, out, notes = narrator()
    shown.show(said(1, "a\x1b[2Jb\x07\u202ec"))
    tool = {"id": "r", "role": "tool", "name": "x\x1b]0;t\x07", "content": "\x1b[31mred"}
    shown.show(event(2, EventKind.MESSAGE, message=tool))
    assert "\x1b" not in out.getvalue() + notes.getvalue() and "\u202e" not in out.getvalue()


def test_without_a_terminal_nothing_is_streamed() -> None:
    shown, out, _ = narrator(live=False)
    shown.show(event(1, EventKind.TOKEN, message_id="m", text="Hel"))
    shown.show(said(2, "Hello"))
    assert out.getvalue() == "" and shown.answer("t") == "Hello"


def test_an_open_question_is_kept_until_it_is_decided() -> None:
    shown, _, notes = narrator()
    shown.show(event(1, EventKind.APPROVAL, card="k", state="opened", request={"ask": "May I?"}))
    assert set(shown.questions) == {"k"} and "May I?" in notes.getvalue()
    shown.show(event(2, EventKind.APPROVAL, card="k", state="decided"))
    assert not shown.questions


def test_a_failure_is_told_with_its_code_and_sentence() -> None:
    shown, _, notes = narrator()
    shown.show(
        event(
            1, EventKind.CHAT_ERROR, status="failed", code="RECURSION_LIMIT", reason="step_limit", message="Use resume."
        )
    )
    assert "RECURSION_LIMIT" in notes.getvalue() and "Use resume." in notes.getvalue()


def test_a_call_that_waits_is_shown_with_its_arguments_and_then_with_who_decided() -> None:
    shown, _, notes = narrator()
    call = {"tool": "restart_service", "arguments": {"name": "web"}}
    opened = {**call, "card": "k", "kind": "approval", "state": "opened"}
    unsure = {**call, "card": "l", "kind": "uncertain", "state": "opened", "why": "It died."}
    denied = {**opened, "state": "decided", "decision": "deny", "decided_by": "ann", "note": "no"}
    for seq, payload in enumerate((opened, denied, unsure, {**unsure, "state": "closed"}), 1):
        shown.show(Event(seq, "c", "t", 1, EventKind.APPROVAL, AT, payload))
    told = notes.getvalue()
    assert 'waits for a decision: restart_service(name="web")' in told and "deny by ann: no" in told
    assert 'did restart_service(name="web") happen? It died.' in told
    assert shown.questions == {} and told.count(" by ") == 1
