"""Cards and decisions, on every store: the first one counts, whoever asks, whenever time runs out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from perdure.errors import BadRequest, CardDecided, Forbidden, UnknownCard
from perdure.events import EventKind
from perdure.store.base import Decided, LeasedAttempt, Spoken
from perdure.turns import EXPIRY, CardState, DecisionKind, RequestKey, TurnStatus, Verdict
from tests.conformance.journal import BROKEN, OWNER, STRANGER, Journal, ask, gate

APPROVE = Verdict(DecisionKind.APPROVE, by=OWNER)
DENY = Verdict(DecisionKind.DENY, note="not today", by=OWNER)
ENDINGS = {TurnStatus.CANCELLED: None, TurnStatus.FAILED: BROKEN}


async def only_card(journal: Journal, attempt: LeasedAttempt) -> str:
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    return card.id


def told(journal: Journal, state: str) -> list[Mapping[str, Any]]:
    approvals = [event.payload for event in journal.heard.events if event.kind is EventKind.APPROVAL]
    return [payload for payload in approvals if payload["state"] == state]


# -- cards ----------------------------------------------------------------------------------------------------------------


async def test_a_card_of_a_gate_shows_the_call_and_the_event_tells_it(journal: Journal) -> None:
    question = gate(expires_seconds=60, deciders=(OWNER,))
    attempt = await journal.parked(question)
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    assert question.gate is not None
    assert (card.kind, card.request, card.deciders, card.verdict) == ("approval", question.request, (OWNER,), None)
    assert card.call is not None
    assert (card.call.tool, card.call.server, card.call.arguments) == ("charge_card", "bank", {"amount": 5})
    assert (card.call.digest, card.call.effect_class) == (question.gate.digest, "once")
    assert (card.call.key, card.call.call_id, card.call.message_id) == ("key-charge_card", "call-charge_card", "m-1")
    assert card.expires_at is not None
    assert (card.expires_at - journal.clock.now()).total_seconds() == 60
    assert told(journal, "opened") == [
        {
            "card": card.id,
            "kind": "approval",
            "state": "opened",
            "interrupt_id": question.interrupt_id,
            "tool": "charge_card",
            "server": "bank",
            "arguments": {"amount": 5},
            "digest": question.gate.digest,
            "effect_class": "once",
            "call_id": "call-charge_card",
            "expires_at": card.expires_at.isoformat(),
        }
    ]


async def test_an_uncertain_call_says_why_and_does_not_expire(journal: Journal) -> None:
    attempt = await journal.parked(gate(uncertain=True, expires_seconds=1))
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    assert (card.kind, card.why, card.expires_at) == ("uncertain", "The process ended.", None)
    assert told(journal, "opened")[0]["why"] == "The process ended."


async def test_a_question_of_the_graphs_own_is_told_with_what_was_asked(journal: Journal) -> None:
    await journal.parked(ask("i-1", {"ask": "really?"}))
    (payload,) = told(journal, "opened")
    assert (payload["kind"], payload["request"], "tool" in payload) == ("interrupt", {"ask": "really?"}, False)


async def test_everything_that_waits_is_paged_oldest_first(journal: Journal) -> None:
    made = []
    for number in range(3):
        attempt = await journal.parked(gate(f"tool-{number}"), ask(f"i-{number}"))
        made += [card.id for card in await journal.store.cards(OWNER, attempt.turn.id)]
        journal.clock.advance(1)
    seen: list[str] = []
    cursor = None
    while True:
        page = await journal.store.approvals(OWNER, OWNER, limit=2, cursor=cursor)
        seen += [card.id for card in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == 6
    assert sorted(seen) == sorted(made)
    assert {*seen[:2]} == {*made[:2]}
    of_last = await journal.store.approvals(OWNER, OWNER, limit=9, conversation=attempt.turn.conversation)
    assert {card.id for card in of_last.items} == {*made[4:]}


async def test_the_cards_of_one_park_are_listed_in_the_order_in_which_they_were_asked(journal: Journal) -> None:
    names = [f"tool-{number}" for number in (7, 3, 9, 1, 8, 2, 6, 4, 5)]
    attempt = await journal.parked(*(gate(name) for name in names))
    for scope in (OWNER, None):
        listed: list[str] = []
        cursor: str | None = None
        while len(listed) < len(names):
            page = await journal.store.approvals(scope, OWNER, limit=2, cursor=cursor)
            listed += [card.call.tool for card in page.items if card.call is not None]
            cursor = page.next
        assert (listed, cursor) == (names, None)
    opened = [card.opened_at for card in await journal.store.cards(OWNER, attempt.turn.id)]
    assert opened == sorted(opened) and opened[0] == journal.clock.now()


async def test_a_person_sees_its_own_cards_and_those_that_name_it_and_an_operator_all(journal: Journal) -> None:
    attempt = await journal.parked(gate("hidden"), gate("named", deciders=(STRANGER, "clara")))
    cards = await journal.cards(attempt.turn.id)
    named, hidden = cards[gate("named").interrupt_id].id, cards[gate("hidden").interrupt_id].id

    async def visible(scope: str | None, name: str) -> set[str]:
        return {card.id for card in (await journal.store.approvals(scope, name, limit=10)).items}

    assert await visible(STRANGER, STRANGER) == {named}
    assert await visible(OWNER, OWNER) == await visible(None, "dora") == {named, hidden}
    assert await visible("eve", "eve") == set()
    assert (await journal.store.card(STRANGER, STRANGER, named)).id == named
    with pytest.raises(UnknownCard) as refusal:
        await journal.store.card(STRANGER, STRANGER, hidden)
    assert refusal.value.details == {"pending": [named]}
    with pytest.raises(UnknownCard):
        await journal.store.card("eve", "eve", named)
    assert (await journal.store.card(None, "dora", hidden)).id == hidden


# -- deciding -------------------------------------------------------------------------------------------------------------


async def test_a_decision_is_kept_whole_told_and_queues_the_turn_with_the_last_one(journal: Journal) -> None:
    attempt = await journal.parked(gate("one"), gate("two"), gate("three", uncertain=True))
    cards = await journal.cards(attempt.turn.id)
    one, two, three = (
        cards[each]
        for each in (gate("one").interrupt_id, gate("two").interrupt_id, gate("three", uncertain=True).interrupt_id)
    )
    edited = Verdict(DecisionKind.APPROVE, arguments={"amount": 4}, note="less", by=OWNER)
    assert (
        await journal.store.decide(OWNER, three.id, Verdict(DecisionKind.HAPPENED, result={"id": 7}, by=OWNER))
    ).turn_status is TurnStatus.PARKED
    assert (await journal.store.decide(OWNER, one.id, edited)).turn_status is TurnStatus.PARKED
    await journal.crash()
    decided = await journal.store.decide(OWNER, two.id, DENY)
    assert decided.turn_status is TurnStatus.QUEUED
    assert decided.card.verdict is not None
    assert (decided.card.verdict.decision, decided.card.verdict.at) == (DecisionKind.DENY, journal.clock.now())
    verdicts = {gate_id: card.verdict for gate_id, card in (await journal.store.verdicts(attempt.turn.id)).items()}
    kept = verdicts[one.interrupt_id]
    assert kept is not None
    assert (kept.arguments, kept.note, kept.by, kept.result) == ({"amount": 4}, "less", OWNER, None)
    happened = verdicts[three.interrupt_id]
    assert happened is not None
    assert happened.result == {"id": 7}
    assert [(each["decision"], each["decided_by"], each.get("note")) for each in told(journal, "decided")] == [
        ("happened", OWNER, None),
        ("approve", OWNER, "less"),
        ("deny", OWNER, "not today"),
    ]
    assert (await journal.claimed()).rewind is None


async def test_the_loser_is_told_who_decided_what_and_when_and_what_still_waits(journal: Journal) -> None:
    attempt = await journal.parked(gate("one"), gate("two"))
    cards = await journal.cards(attempt.turn.id)
    one, two = cards[gate("one").interrupt_id].id, cards[gate("two").interrupt_id].id
    await journal.store.decide(OWNER, one, APPROVE)
    at = journal.clock.now()
    journal.clock.advance(5)
    with pytest.raises(CardDecided, match="anna") as refusal:
        await journal.store.decide(None, one, Verdict(DecisionKind.DENY, by="clara"))
    assert refusal.value.details == {
        "decision": "approve",
        "decided_by": OWNER,
        "decided_at": at.isoformat(),
        "pending": [two],
    }


@pytest.mark.parametrize("deciders", range(2, 9))
async def test_of_deciders_at_the_same_moment_exactly_one_wins(journal: Journal, deciders: int) -> None:
    for _ in range(5):
        attempt = await journal.parked(gate())
        card = await only_card(journal, attempt)

        async def decide(number: int, card: str = card) -> Decided:
            kind = DecisionKind.APPROVE if number % 2 else DecisionKind.DENY
            return await journal.store.decide(None, card, Verdict(kind, by=f"person-{number}"))

        outcomes = await asyncio.gather(*(decide(number) for number in range(deciders)), return_exceptions=True)
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Decided)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, CardDecided)]
        assert len(losers) == deciders - 1
        assert winner.card.verdict is not None
        assert {loser.details["decided_by"] for loser in losers} == {winner.card.verdict.by}
        (kept,) = (await journal.store.verdicts(attempt.turn.id)).values()
        assert kept.verdict == winner.card.verdict
        await (await journal.claimed()).finish(TurnStatus.COMPLETED)


async def test_deciders_on_threads_of_their_own_do_not_both_win(journal: Journal) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(10):
        attempt = await journal.parked(gate())
        card = await only_card(journal, attempt)
        start = threading.Barrier(4)

        def decide(name: str, card: str = card, start: threading.Barrier = start) -> bool:
            start.wait()
            verdict = Verdict(DecisionKind.APPROVE, by=name)
            try:
                asyncio.run_coroutine_threadsafe(journal.store.decide(None, card, verdict), loop).result()
            except CardDecided:
                return False
            return True

        won = await asyncio.gather(*(asyncio.to_thread(decide, name) for name in "abcd"))
        assert sum(won) == 1
        await (await journal.claimed()).finish(TurnStatus.COMPLETED)


async def test_an_unknown_and_a_foreign_card_look_the_same(journal: Journal) -> None:
    attempt = await journal.parked(gate())
    foreign = await only_card(journal, attempt)
    refusals = []
    for card in ("nothing", foreign):
        with pytest.raises(UnknownCard) as refusal:
            await journal.store.decide(STRANGER, card, Verdict(DecisionKind.APPROVE, by=STRANGER))
        refusals.append((refusal.value.message, refusal.value.details))
    assert refusals[0] == refusals[1] == (refusals[0][0], {"pending": []})
    with pytest.raises(UnknownCard) as refusal:
        await journal.store.decide(OWNER, "nothing", APPROVE)
    assert refusal.value.details == {"pending": [foreign]}
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.PARKED


async def test_a_card_that_names_its_deciders_is_decided_by_them_alone(journal: Journal) -> None:
    attempt = await journal.parked(gate(deciders=("clara",)))
    card = await only_card(journal, attempt)
    for scope, name in ((OWNER, OWNER), (None, "operator")):
        with pytest.raises(Forbidden, match="clara"):
            await journal.store.decide(scope, card, Verdict(DecisionKind.APPROVE, by=name))
    with pytest.raises(Forbidden):
        said = {gate(deciders=("clara",)).interrupt_id: APPROVE}
        await journal.store.answer(OWNER, attempt.turn.conversation, said, OWNER)
    assert (
        await journal.store.decide("clara", card, Verdict(DecisionKind.APPROVE, by="clara"))
    ).card.verdict is not None


@pytest.mark.parametrize(
    ("question", "fit"),
    [
        (gate(), {DecisionKind.APPROVE, DecisionKind.DENY}),
        (gate(uncertain=True), {DecisionKind.HAPPENED, DecisionKind.RETRY, DecisionKind.GIVE_UP}),
        (ask(), {DecisionKind.ANSWER}),
    ],
)
async def test_a_card_takes_the_decisions_of_its_kind(journal: Journal, question: Any, fit: set[DecisionKind]) -> None:
    for kind in DecisionKind:
        attempt = await journal.parked(question)
        card = await only_card(journal, attempt)
        verdict = Verdict(kind, by=OWNER)
        if kind in fit:
            assert (await journal.store.decide(OWNER, card, verdict)).turn_status is TurnStatus.QUEUED
            await (await journal.claimed()).finish(TurnStatus.COMPLETED)
        else:
            with pytest.raises(BadRequest, match=f"not `{kind}`"):
                await journal.store.decide(OWNER, card, verdict)
            with pytest.raises(BadRequest):
                await journal.store.answer(OWNER, attempt.turn.conversation, {question.interrupt_id: verdict}, OWNER)
            assert (await journal.cards(attempt.turn.id))[question.interrupt_id].state is CardState.OPENED


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(DecisionKind.DENY, arguments={"amount": 1}, by=OWNER),
        Verdict(DecisionKind.APPROVE, result="done", by=OWNER),
        Verdict(DecisionKind.APPROVE, value=1, by=OWNER),
    ],
)
async def test_what_a_decision_does_not_take_is_refused_rather_than_forgotten(
    journal: Journal, verdict: Verdict
) -> None:
    attempt = await journal.parked(gate())
    with pytest.raises(BadRequest, match="alone"):
        await journal.store.decide(OWNER, await only_card(journal, attempt), verdict)


async def test_answers_and_decisions_are_one_thing(journal: Journal) -> None:
    approval, own = gate(), ask("i-1")
    attempt = await journal.parked(approval, own)
    thread = attempt.turn.conversation
    said = {
        approval.interrupt_id: Verdict(DecisionKind.DENY, note="no"),
        "i-1": Verdict(DecisionKind.ANSWER, value=[1]),
    }
    assert (await journal.store.answer(OWNER, thread, said, "clara")).status is TurnStatus.QUEUED
    verdicts = await journal.store.verdicts(attempt.turn.id)
    assert {card.verdict.by for card in verdicts.values() if card.verdict} == {"clara"}
    with pytest.raises(CardDecided, match="clara"):
        await journal.store.decide(OWNER, verdicts["i-1"].id, Verdict(DecisionKind.ANSWER, value=2, by=OWNER))


async def test_one_answer_of_several_that_does_not_fit_decides_nothing(journal: Journal) -> None:
    approval, own = gate(), ask("i-1")
    attempt = await journal.parked(approval, own)
    said = {"i-1": Verdict(DecisionKind.ANSWER, value=1), approval.interrupt_id: Verdict(DecisionKind.RETRY)}
    with pytest.raises(BadRequest):
        await journal.store.answer(OWNER, attempt.turn.conversation, said, OWNER)
    assert await journal.store.verdicts(attempt.turn.id) == {}


async def test_an_operators_answer_repeated_with_its_key_counts_once(journal: Journal) -> None:
    attempt = await journal.parked(ask())
    thread, key, said = attempt.turn.conversation, RequestKey("k", "d"), {"i-1": Verdict(DecisionKind.ANSWER, value=1)}
    await journal.store.answer(None, thread, said, "dora", key)
    assert (await journal.store.answer(None, thread, said, "dora", key)).repeated


async def test_text_that_no_database_holds_does_not_stop_a_decision(journal: Journal) -> None:
    attempt = await journal.parked(gate("nul\x00\ud800"))
    verdict = Verdict(DecisionKind.APPROVE, arguments={"x": "\ud800"}, note="a\ud800b", by=OWNER)
    await journal.store.decide(OWNER, await only_card(journal, attempt), verdict)
    (card,) = (await journal.store.verdicts(attempt.turn.id)).values()
    assert card.verdict is not None
    assert (card.verdict.arguments, card.verdict.note) == ({"x": "\ud800"}, "a?b")


async def test_whoever_lists_what_waits_is_told_of_each_decision(journal: Journal) -> None:
    attempt = await journal.parked(ask("i-1"), ask("i-2"))
    start = await journal.store.last_change(None)
    await journal.answer(attempt.turn.conversation, {"i-1": 1})
    await journal.answer(attempt.turn.conversation, {"i-2": 1})
    changes = await journal.store.changes(None, start, 10)
    assert [(change.turn, change.status) for change in changes] == [
        (attempt.turn.id, "parked"),
        (attempt.turn.id, "queued"),
    ]


# -- time -----------------------------------------------------------------------------------------------------------------


async def test_an_approval_nobody_decides_in_time_is_denied_by_time(journal: Journal) -> None:
    attempt = await journal.parked(gate(expires_seconds=60), gate("patient"))
    assert await journal.store.expire(journal.clock.now()) == journal.clock.now().replace(minute=1)
    journal.clock.advance(60)
    assert await journal.store.expire(journal.clock.now()) is None
    cards = await journal.cards(attempt.turn.id)
    expired, patient = cards[gate().interrupt_id], cards[gate("patient").interrupt_id]
    assert expired.verdict is not None
    assert (expired.verdict.decision, expired.verdict.by) == (DecisionKind.DENY, EXPIRY)
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.PARKED
    assert told(journal, "decided")[0]["decided_by"] == EXPIRY
    await journal.store.decide(OWNER, patient.id, APPROVE)
    assert (await journal.claimed()).turn.id == attempt.turn.id


async def test_the_last_card_that_expires_queues_its_turn(journal: Journal) -> None:
    attempts = [await journal.parked(gate("one", expires_seconds=5), gate("two", expires_seconds=9)) for _ in range(3)]
    journal.clock.advance(10)
    journal.heard.rings.clear()
    assert await journal.store.expire(journal.clock.now()) is None
    assert "queue" in journal.heard.rings
    assert {(await journal.turn(attempt.turn.id)).status for attempt in attempts} == {TurnStatus.QUEUED}
    assert len(told(journal, "decided")) == 6


@pytest.mark.parametrize("verb", ["decide", "answer"])
async def test_a_decision_after_the_time_is_over_loses_to_it(journal: Journal, verb: str) -> None:
    question = gate(expires_seconds=60)
    attempt = await journal.parked(question)
    card = await only_card(journal, attempt)
    journal.clock.advance(60)
    with pytest.raises(CardDecided) as refusal:
        if verb == "decide":
            await journal.store.decide(OWNER, card, APPROVE)
        else:
            await journal.store.answer(OWNER, attempt.turn.conversation, {question.interrupt_id: APPROVE}, OWNER)
    assert (refusal.value.details["decided_by"], refusal.value.details["decision"]) == (EXPIRY, "deny")
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.QUEUED
    assert len(told(journal, "decided")) == 1


async def test_time_and_a_person_at_the_same_moment_decide_once(journal: Journal) -> None:
    for seconds in (59, 60):
        attempt = await journal.parked(gate(expires_seconds=60))
        card = await only_card(journal, attempt)
        journal.clock.advance(seconds)
        now = journal.clock.now()
        await asyncio.gather(
            journal.store.expire(now), journal.store.decide(OWNER, card, APPROVE), return_exceptions=True
        )
        (kept,) = (await journal.store.verdicts(attempt.turn.id)).values()
        assert kept.verdict is not None
        assert kept.verdict.by == (OWNER if seconds == 59 else EXPIRY)
        await (await journal.claimed()).finish(TurnStatus.COMPLETED)


# -- cancel ---------------------------------------------------------------------------------------------------------------


async def test_cancelling_a_parked_turn_closes_its_cards_at_once_in_the_order_of_seqs(journal: Journal) -> None:
    attempt = await journal.parked(gate("one"), gate("two"))
    cards = await journal.cards(attempt.turn.id)
    await journal.store.decide(OWNER, cards[gate("one").interrupt_id].id, APPROVE)
    cancelled = await journal.store.cancel(OWNER, attempt.turn.id)
    assert (cancelled.status, cancelled.discards_cards) == (TurnStatus.QUEUED, True)
    assert [each["card"] for each in told(journal, "closed")] == [cards[gate("two").interrupt_id].id]
    with pytest.raises(CardDecided, match="cancelled") as refusal:
        await journal.store.decide(OWNER, cards[gate("two").interrupt_id].id, APPROVE)
    assert refusal.value.details["pending"] == []
    again = await journal.claimed()
    assert again.turn.discards_cards
    assert again.rewind is None
    await journal.die(again)
    third = await journal.claimed()
    await third.finish(TurnStatus.CANCELLED)
    seqs = [event.seq for event in journal.heard.events]
    assert seqs == sorted(seqs)
    retained = await journal.store.events(attempt.turn.conversation)
    states = [event.payload["state"] for event in retained if event.kind is EventKind.APPROVAL]
    assert states == ["opened", "opened", "decided", "closed"]


async def test_a_turn_that_parks_after_its_cancel_opens_no_card(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await attempt.park([gate()])
    assert told(journal, "opened") == []
    assert (await journal.store.approvals(OWNER, OWNER, limit=5)).items == []
    assert (await journal.claimed()).turn.cancel_requested_at is not None


async def test_what_a_call_did_is_asked_despite_the_cancel_until_a_second_one(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await attempt.park([gate(uncertain=True)], despite_cancel=True)
    turn = await journal.turn(attempt.turn.id)
    assert (turn.status, turn.discards_cards) == (TurnStatus.PARKED, False)
    assert await journal.claim() is None
    turn = await journal.store.cancel(OWNER, attempt.turn.id)
    assert (turn.status, turn.discards_cards) == (TurnStatus.QUEUED, True)
    assert len(told(journal, "closed")) == 1
    again = await journal.claimed()
    await again.park([gate("other", uncertain=True)], despite_cancel=True)
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.QUEUED, "nobody is asked any more"


@pytest.mark.parametrize("end", list(ENDINGS))
async def test_what_was_said_before_a_cancel_parks_is_kept_until_the_turn_ends(
    journal: Journal, end: TurnStatus
) -> None:
    said = [Spoken("m-2", "Let me "), Spoken("m-1", "see \ud800")]
    other = await journal.parked(gate(uncertain=True))
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await attempt.park([gate(uncertain=True)], despite_cancel=True, spoken=said)
    await journal.crash()
    kept = await journal.store.spoken(attempt.turn.id)
    assert [each.message for each in kept] == ["m-2", "m-1"]
    assert kept[0] == said[0] and kept[1].text.startswith("see ")
    assert await journal.store.spoken(other.turn.id) == []
    await journal.store.cancel(OWNER, attempt.turn.id)
    again = await journal.claimed()
    assert await journal.store.spoken(attempt.turn.id) == kept
    await again.finish(end, ENDINGS[end])
    assert await journal.store.spoken(attempt.turn.id) == []


async def test_what_was_said_is_kept_although_the_cards_are_discarded_meanwhile(journal: Journal) -> None:
    attempt = await journal.parked(gate())
    await journal.store.cancel(OWNER, attempt.turn.id)
    again = await journal.claimed()
    assert again.turn.discards_cards
    await again.park([gate(uncertain=True)], despite_cancel=True, spoken=[Spoken("m-1", "Let me")])
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.QUEUED
    assert await journal.store.spoken(attempt.turn.id) == [Spoken("m-1", "Let me")]


async def test_a_question_closed_by_a_failure_is_opened_again_as_it_is_asked_then(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    question = gate(uncertain=True)
    await attempt.park([question], despite_cancel=True)
    await journal.store.cancel(OWNER, attempt.turn.id)
    await (await journal.claimed()).finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    again = await journal.claimed()
    assert (again.turn.discards_cards, again.turn.cancel_requested_at) == (False, None)
    await again.park([question])
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    assert (card.state, card.kind) == (CardState.OPENED, "uncertain")
    await journal.store.decide(OWNER, card.id, Verdict(DecisionKind.RETRY, by=OWNER))
    assert (await journal.claimed()).turn.id == attempt.turn.id
