"""Cards in the terminal: shown exactly, decided by the person who is asked, found by the beginning of an id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from perdure.cli import cards
from perdure.cli.approvals import find
from perdure.cli.cards import arguments_of, decide_here, details, open_cards, tell, tell_commands, title
from perdure.cli.client import Client, Server
from perdure.cli.output import clean, exact
from perdure.errors import BadRequest, UnknownCard


def card(id: str = "k1", kind: str = "approval", **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "turn": "t1",
        "conversation": "c1",
        "interrupt_id": f"gate-{id}",
        "kind": kind,
        "state": "opened",
        "tool": "restart_service",
        "server": None,
        "arguments": {"name": "web"},
        "digest": "d" * 64,
        "effect_class": "once",
        "key": "t1-key",
        "opened_at": "2026-01-02T03:04:05+00:00",
        "expires_at": None,
        **more,
    }


# -- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hidden", ["\x1b[2K", "\u202e", "\u200b", "\u2066", "\x9b31m", "\ufeff", "\u00ad", "\u2028", "\u200d", "\x7f", "\r"]
)
def test_exact_json_shows_every_character_that_a_terminal_would_obey_or_hide(hidden: str) -> None:
    shown = exact({"path": f"/tmp/{hidden}x"})
    assert hidden not in shown and shown.isprintable()
    assert clean(shown) == shown
    assert json.loads(shown) == {"path": f"/tmp/{hidden}x"}, "and means the same"


def test_words_in_any_script_stay_readable() -> None:
    assert exact({"who": "Ірина 山田"}) == '{"who": "Ірина 山田"}'


def test_an_approval_is_shown_with_its_whole_arguments_however_long() -> None:
    long = {"text": "x" * 5_000}
    lines = dict(details(card(arguments=long, expires_at="2026-01-02T03:04:05+00:00", deciders=["ann", "bo"])))
    assert lines["arguments"] == json.dumps(long)
    assert "denied" in lines["expires"] and lines["deciders"] == "ann, bo"


def test_an_uncertain_call_is_shown_with_what_became_of_it_and_its_key() -> None:
    shown = card(kind="uncertain", why="The process died.", server="bank")
    assert "did it happen" in title(shown) and "of bank" in title(shown)
    assert dict(details(shown))["why"] == "The process died." and dict(details(shown))["key"] == "t1-key"


def test_a_decided_card_tells_who_decided_what() -> None:
    decided = card(
        state="decided",
        decision="approve",
        decided_by="ann",
        decided_at="2026-01-02T03:04:05+00:00",
        decided_arguments={"name": "db"},
        note="ok",
    )
    lines = dict(details(decided))
    assert lines["decided"].startswith("approve by ann") and lines["ran with"] == '{"name": "db"}'
    assert open_cards({"cards": [decided, card("k2")]}) == [card("k2")]


@pytest.mark.parametrize(
    ("kind", "verbs"),
    [("approval", ["approve", "deny"]), ("uncertain", ["happened", "retry", "give-up"]), ("interrupt", ["answer"])],
)
def test_each_kind_of_card_comes_with_the_commands_that_decide_it(
    capsys: pytest.CaptureFixture[str], kind: str, verbs: list[str]
) -> None:
    tell_commands(card(kind=kind))
    told = capsys.readouterr().err
    assert [verb for verb in verbs if f"perdure approvals {verb} k1" not in told] == []


def test_a_hostile_card_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell(
        card(
            tool="x\x1b[2Jy\u202e",
            server="\x07bell",
            why="\x1b]0;owned\x07",
            arguments={"a": "\x1b[31m"},
            deciders=["\x1bz"],
        )
    )
    told = capsys.readouterr().err
    assert "\x1b" not in told and "\x07" not in told and "\u202e" not in told


# -- the person who is asked ------------------------------------------------------------------------------------------


class Desk:
    """A server with one parked turn, and a person who types the given lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waiting: list[dict[str, Any]], *lines: str | None) -> None:
        self.waiting = waiting
        self.decided: list[tuple[str, Any]] = []
        self.refusals: list[tuple[int, dict[str, Any]]] = []
        self.prompts: list[str] = []
        self._lines = iter(lines)
        monkeypatch.setattr(cards, "ask_line", self._ask)

    async def _ask(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return next(self._lines)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path == "/api/turns/t1":
            return httpx2.Response(200, json={"cards": self.waiting})
        if self.refusals:
            status, body = self.refusals.pop(0)
            return httpx2.Response(status, json=body)
        self.decided.append((path.rpartition("/")[2], json.loads(request.content)))
        return httpx2.Response(202, json={"card": {}, "turn_status": "queued"})

    async def decide(self) -> bool:
        transport = httpx2.MockTransport(self._answer)
        async with Client(lambda: Server("http://desk", "secret"), transport=transport) as client:
            return await decide_here(client, "t1")


@pytest.mark.parametrize(
    ("kind", "lines", "decision"),
    [
        ("approval", ["a"], {"decision": "approve"}),
        ("approval", ["what?", "A"], {"decision": "approve"}),
        ("approval", ["d", "not now"], {"decision": "deny", "note": "not now"}),
        ("approval", ["d", ""], {"decision": "deny", "note": None}),
        ("approval", ["e", '{"name": "db"}', "y"], {"decision": "approve", "arguments": {"name": "db"}}),
        ("approval", ["e", "{no json", "e", "[1]", "e", '{"name": "db"}', "n", "a"], {"decision": "approve"}),
        ("uncertain", ["h", "restarted"], {"decision": "happened", "result": "restarted"}),
        ("uncertain", ["h", '{"ok": 1}'], {"decision": "happened", "result": {"ok": 1}}),
        ("uncertain", ["h", ""], {"decision": "happened", "result": None}),
        ("uncertain", ["r"], {"decision": "retry"}),
        ("uncertain", ["g", "lost"], {"decision": "give_up", "note": "lost"}),
        ("interrupt", ["yes please"], {"decision": "answer", "value": "yes please"}),
        ("interrupt", ["false"], {"decision": "answer", "value": False}),
    ],
)
async def test_what_a_person_types_becomes_the_decision(
    monkeypatch: pytest.MonkeyPatch, kind: str, lines: list[str], decision: dict[str, Any]
) -> None:
    desk = Desk(monkeypatch, [card(kind=kind)], *lines)
    assert await desk.decide()
    assert desk.decided == [("k1", decision)]


@pytest.mark.parametrize("kind", ["approval", "uncertain", "interrupt"])
@pytest.mark.parametrize("line", ["", None])
async def test_a_card_may_be_left_for_later(monkeypatch: pytest.MonkeyPatch, kind: str, line: str | None) -> None:
    desk = Desk(monkeypatch, [card(kind=kind)], line)
    assert not await desk.decide()
    assert desk.decided == []


async def test_every_open_card_of_the_turn_is_asked_about_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = [card("k1"), card("k2", state="decided", decision="deny"), card("k3")]
    desk = Desk(monkeypatch, waiting, "a", "d", "no")
    assert await desk.decide()
    assert [each for each, _ in desk.decided] == ["k1", "k3"]


async def test_arguments_that_the_tool_does_not_take_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(monkeypatch, [card()], "e", '{"nmae": "db"}', "y", "a")
    desk.refusals = [(400, {"code": "BAD_REQUEST", "message": "nmae: there is no such argument"})]
    assert await desk.decide()
    assert "no such argument" in capsys.readouterr().err
    assert desk.decided == [("k1", {"decision": "approve"})]


async def test_when_somebody_else_was_faster_the_person_is_told_and_the_turn_is_watched_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(monkeypatch, [card()], "a")
    desk.refusals = [(409, {"code": "APPROVAL_DECIDED", "message": "answered by olga"})]
    assert await desk.decide()
    assert "answered by olga" in capsys.readouterr().err


async def test_a_decision_that_meets_a_restart_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, [card()], "a")
    desk.refusals = [(503, {"code": "NOT_READY", "message": "going down"}), (503, {})]
    assert await desk.decide()
    assert desk.decided == [("k1", {"decision": "approve"})] and len(desk.prompts) == 1


async def test_a_person_who_may_not_decide_leaves_the_card_open(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, [card()], "a")
    desk.refusals = [(403, {"code": "FORBIDDEN", "message": "decided by ann"})]
    assert not await desk.decide()


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "null", "name=db", '{"a": NaN}', '{"a": -Infinity}'])
def test_arguments_are_a_json_object(text: str) -> None:
    with pytest.raises(ValueError, match="arguments"):
        arguments_of(text)


# -- ids --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting() -> Iterator[Client]:
    """`abc1`, `abc2` and `def1` wait, one to a page; `done1` was decided."""
    known = {each: card(each) for each in ("abc1", "abc2", "def1")}

    def answer(request: httpx2.Request) -> httpx2.Response:
        _, _, asked = request.url.path.partition("/api/approvals/")
        if not asked:
            place = int(request.url.params.get("cursor") or 0)
            following = str(place + 1) if place < 2 else None
            return httpx2.Response(200, json={"items": [list(known.values())[place]], "next": following})
        if asked in known or asked == "done1":
            return httpx2.Response(200, json=known.get(asked, card("done1", state="decided")))
        return httpx2.Response(404, json={"code": "APPROVAL_UNKNOWN", "message": "none", "pending": list(known)})

    yield Client(lambda: Server("http://desk", "secret"), transport=httpx2.MockTransport(answer))


async def test_a_card_is_found_by_its_id_or_by_a_beginning_that_fits_one(waiting: Client) -> None:
    async with waiting as client:
        for given, found in (("abc1", "abc1"), ("d", "def1"), ("done1", "done1")):
            assert (await find(client, given))["id"] == found


async def test_a_beginning_that_fits_several_or_none_is_refused_with_the_ids(waiting: Client) -> None:
    async with waiting as client:
        with pytest.raises(BadRequest, match="abc1, abc2"):
            await find(client, "abc")
        for given in ("xyz", "", "../turns", "done"):
            with pytest.raises(UnknownCard, match="abc1, abc2, def1"):
                await find(client, given)
