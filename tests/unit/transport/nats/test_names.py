"""Subjects: one word for each name, read back as they were built."""

from __future__ import annotations

import pytest

from perdure.errors import BadRequest, ConfigurationError
from perdure.transport.nats.names import Address, Names, is_agent_name

NAMES = Names("perdure", "default")
TURN = "0123456789abcdef" * 2
WRONG = ["", ".", "*", ">", "a.b", "a b", "a*", "-a", "_a", "ä", "a\r\nPUB x 0", "a" * 65, "a\n", "$JS"]


def matches(pattern: str, subject: str) -> bool:
    """As the server does."""
    want, have = pattern.split("."), subject.split(".")
    if want[-1] == ">":
        want, have = want[:-1], have[: len(want) - 1] if len(have) >= len(want) else [""]
    return len(want) == len(have) and all(w in {"*", h} for w, h in zip(want, have, strict=True))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_name_that_is_not_one_word_builds_no_subject(wrong: str) -> None:
    assert not is_agent_name(wrong)
    for build in (NAMES.requests, NAMES.news, NAMES.presence):
        with pytest.raises(BadRequest):
            build(wrong)
    with pytest.raises(BadRequest):
        NAMES.turns(wrong, TURN)
    with pytest.raises(BadRequest):
        NAMES.inbox("agent", wrong)


@pytest.mark.parametrize("wrong", [*WRONG, TURN.upper(), TURN[:-1], TURN + "0", TURN + "\n"])
def test_what_is_no_turn_builds_no_subject(wrong: str) -> None:
    with pytest.raises(BadRequest):
        NAMES.turns("alpha", wrong)
    with pytest.raises(BadRequest):
        NAMES.tokens("alpha", wrong)


def test_settings_that_are_no_words_are_named_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Names("a.b", "*")
    assert ["nats_prefix" in raised.value.problems[0], "namespace" in raised.value.problems[1]] == [True, True]


def test_subjects_are_read_back() -> None:
    assert NAMES.parse(NAMES.turns("alpha", TURN)) == Address("turns", "alpha", TURN)
    assert NAMES.parse(NAMES.tokens("alpha", TURN)) == Address("tokens", "alpha", TURN)
    assert NAMES.parse(NAMES.news("alpha")) == Address("news", "alpha")
    assert NAMES.parse(NAMES.requests("alpha")) == Address("agents", "alpha")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "perdure.turns.default.alpha",
        f"perdure.turns.other.alpha.{TURN}",
        f"other.turns.default.alpha.{TURN}",
        f"perdure.news.default.alpha.{TURN}",
        f"perdure.turns.default.a*.{TURN}",
        f"perdure.turns.default.alpha.{TURN}.more",
        "perdure.discover.default",
    ],
)
def test_other_subjects_are_nobodys(subject: str) -> None:
    assert NAMES.parse(subject) is None


def test_the_live_subscription_takes_events_and_tokens_and_nothing_else() -> None:
    assert matches(NAMES.live, NAMES.turns("alpha", TURN))
    assert matches(NAMES.live, NAMES.tokens("alpha", TURN))
    others = [NAMES.news("alpha"), NAMES.requests("alpha"), NAMES.discover]
    others += [f"{NAMES.inbox('gateway')}.1", f"{NAMES.inbox('agent', 'alpha')}.1"]
    assert not [subject for subject in others if matches(NAMES.live, subject)]


def test_the_stream_takes_the_turns_of_every_namespace() -> None:
    assert matches(NAMES.stream_subjects, Names("perdure", "other").turns("alpha", TURN))
    assert not matches(NAMES.stream_subjects, NAMES.tokens("alpha", TURN))
    assert matches(NAMES.all_turns, NAMES.turns("alpha", TURN))


def test_an_inbox_is_below_its_role_and_new_each_time() -> None:
    assert matches("perdure.inbox.default.gateway.>", NAMES.inbox("gateway"))
    assert matches("perdure.inbox.default.agent.alpha.>", NAMES.inbox("agent", "alpha"))
    assert NAMES.inbox("gateway") != NAMES.inbox("gateway")


def test_the_presence_of_an_agent_is_below_its_inboxes_and_none_of_them() -> None:
    presence = NAMES.presence("alpha")
    assert presence.startswith("perdure.inbox.default.agent.alpha.")
    assert not matches("perdure.inbox.default.agent.alpha.*.*", presence), "a reply is a word below an inbox"
    assert NAMES.parse(presence) is None and not matches(NAMES.live, presence)
