"""Who may see and do what, under which name, and what stays written of it; on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.errors import BadRequest, NotFound, TurnInProgress
from perdure.events import EventKind
from perdure.ledger import ToolCall
from perdure.store.base import Store
from perdure.turns import CardState, DecisionKind, RequestKey, Role, TurnStatus, Verdict
from tests.conformance.journal import BROKEN, OWNER, STRANGER, Journal, ask, gate, intend, work

# -- scope ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [
        lambda store, scope, thread, turn: store.resume(scope, thread),
        lambda store, scope, thread, turn: store.answer(
            scope, thread, {"i-1": Verdict(DecisionKind.ANSWER, value=1)}, "dora"
        ),
        lambda store, scope, thread, turn: store.cancel(scope, turn),
        lambda store, scope, thread, turn: store.conversation(scope, thread),
        lambda store, scope, thread, turn: store.rename(scope, thread, "mine"),
        lambda store, scope, thread, turn: store.delete(scope, thread),
        lambda store, scope, thread, turn: store.turn(scope, turn),
        lambda store, scope, thread, turn: store.last_turn(scope, thread),
        lambda store, scope, thread, turn: store.attempts(scope, turn),
        lambda store, scope, thread, turn: store.cards(scope, turn),
        lambda store, scope, thread, turn: store.calls(scope, turn),
    ],
)
async def test_an_operator_reaches_what_another_owner_does_not_find(
    journal: Journal, verb: Callable[[Store, str | None, str, str], Awaitable[object]]
) -> None:
    attempt = await journal.parked(ask("i-1"))
    thread, turn = attempt.turn.conversation, attempt.turn.id
    with pytest.raises(NotFound):
        await verb(journal.store, STRANGER, thread, turn)
    try:
        await verb(journal.store, None, thread, turn)
    except NotFound:
        pytest.fail("an operator's scope is everything")
    except Exception as error:  # what the verb says of a parked turn is not what is asked here
        assert not isinstance(error, TypeError)


async def test_an_operators_lists_hold_everybodys(journal: Journal) -> None:
    mine = [await journal.accept(owner=OWNER) for _ in range(2)]
    journal.clock.advance(1)
    theirs = [await journal.accept(owner=STRANGER) for _ in range(2)]
    conversations = await journal.store.conversations(None, limit=3)
    turns = await journal.store.turns(None, limit=3)
    more_conversations = await journal.store.conversations(None, limit=3, cursor=conversations.next)
    more_turns = await journal.store.turns(None, limit=3, cursor=turns.next)
    assert (len(conversations.items), len(turns.items)) == (3, 3)
    shown = [each.id for each in [*conversations.items, *more_conversations.items]]
    assert {*shown[:2]} == {accepted.conversation for accepted in theirs}
    assert {*shown[2:]} == {accepted.conversation for accepted in mine}
    listed = [each.id for each in [*turns.items, *more_turns.items]]
    assert listed == [accepted.turn for accepted in [*reversed(theirs), *reversed(mine)]]
    assert [turn.owner for turn in (await journal.store.turns(STRANGER, limit=9)).items] == [STRANGER] * 2
    all_changes = await journal.store.changes(None, 0, 100)
    own_changes = [await journal.store.changes(owner, 0, 100) for owner in (OWNER, STRANGER)]
    assert [change.number for change in all_changes] == sorted(each.number for some in own_changes for each in some)
    assert await journal.store.last_change(None) == all_changes[-1].number


async def test_a_resume_by_an_operator_is_repeated_by_its_key(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    thread, key = attempt.turn.conversation, RequestKey("k", "d")
    await journal.store.resume(None, thread, key, by="dora")
    assert (await journal.store.resume(None, thread, key, by="dora")).repeated
    assert await journal.store.repeated(OWNER, key) is not None


# -- tokens ---------------------------------------------------------------------------------------------------------------


async def test_a_token_is_found_by_its_hash_until_it_is_revoked(journal: Journal) -> None:
    made = await journal.store.create_token("clara", Role.OPERATOR, "hash-1", by="admin")
    assert (made.name, made.role, made.created_by, made.revoked_at) == ("clara", Role.OPERATOR, "admin", None)
    await journal.crash()
    found = await journal.store.token_of("hash-1")
    assert found is not None
    assert (found.name, found.created_at) == ("clara", made.created_at)
    assert await journal.store.token_of("hash-2") is None
    journal.clock.advance(5)
    revoked = await journal.store.revoke_token("clara", by="admin")
    assert revoked.revoked_at == journal.clock.now()
    assert await journal.store.token_of("hash-1") is None
    journal.clock.advance(5)
    assert (await journal.store.revoke_token("clara", by="admin")).revoked_at == revoked.revoked_at
    with pytest.raises(NotFound):
        await journal.store.revoke_token("nobody", by="admin")


async def test_a_name_is_given_out_once(journal: Journal) -> None:
    await journal.store.create_token("clara", Role.USER, "hash-1", by="admin")
    await journal.store.revoke_token("clara", by="admin")
    with pytest.raises(BadRequest, match="clara"):
        await journal.store.create_token("clara", Role.OPERATOR, "hash-2", by="admin")
    assert [(token.name, token.role) for token in await journal.store.tokens()] == [("clara", Role.USER)]
    assert await journal.store.token_of("hash-2") is None


async def test_tokens_are_listed_oldest_first_with_their_last_use_to_the_minute(journal: Journal) -> None:
    for number in range(3):
        await journal.store.create_token(f"t-{number}", Role.USER, f"hash-{number}", by="admin")
        journal.clock.advance(1)
    journal.clock.advance(130)
    for _ in range(3):
        await journal.store.token_of("hash-1")
    await journal.store.check()
    tokens = await journal.store.tokens()
    assert [token.name for token in tokens] == ["t-0", "t-1", "t-2"]
    assert [token.last_used_at for token in tokens] == [None, journal.clock.now().replace(second=0), None]
    before = (await journal.store.statistics())["transactions"]
    await journal.store.token_of("hash-1")
    await journal.store.check()
    assert (await journal.store.statistics())["transactions"] == before + 1, "a use within the minute is not written"


# -- the audit ------------------------------------------------------------------------------------------------------------


async def test_who_did_what_is_written_with_the_deed(journal: Journal) -> None:
    attempt = await journal.parked(gate(), gate("two", expires_seconds=5))
    thread, turn = attempt.turn.conversation, attempt.turn.id
    cards = await journal.cards(turn)
    one, two = cards[gate().interrupt_id].id, cards[gate("two", expires_seconds=5).interrupt_id].id
    edited = Verdict(DecisionKind.APPROVE, arguments={"amount": 1}, note="a secret", by="dora")
    await journal.store.decide(None, one, edited)
    journal.clock.advance(5)
    await journal.store.expire(journal.clock.now())
    await journal.store.cancel(None, turn, by="dora")
    await journal.store.cancel(None, turn, by="dora")
    await (await journal.claimed()).finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(None, thread, by="dora")
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await journal.store.rename(OWNER, thread, "another secret", by=OWNER)
    await journal.store.create_token("clara", Role.USER, "hash", by="admin")
    await journal.store.revoke_token("clara", by="admin")
    await journal.store.revoke_token("clara", by="admin")
    await journal.store.delete(OWNER, thread, by=OWNER)
    entries = (await journal.store.audit(None, limit=50)).items
    assert [(entry.action, entry.by, entry.turn, entry.card) for entry in reversed(entries)] == [
        ("decide", "dora", turn, one),
        ("expire", "expiry", turn, two),
        ("cancel", "dora", turn, None),
        ("resume", "dora", turn, None),
        ("rename", OWNER, None, None),
        ("token_create", "admin", None, None),
        ("token_revoke", "admin", None, None),
        ("delete", OWNER, None, None),
    ]
    assert entries[-1].detail == {"kind": "approval", "decision": "approve", "edited": True}
    assert "secret" not in str(entries)
    assert [entry.number for entry in entries] == sorted((entry.number for entry in entries), reverse=True)


async def test_the_audit_is_paged_and_an_owner_sees_what_was_done_to_its_own(journal: Journal) -> None:
    for owner in (OWNER, STRANGER, OWNER):
        accepted = await journal.accept(owner=owner)
        await journal.store.cancel(None, accepted.turn, by="dora")
    first = await journal.store.audit(None, limit=2)
    rest = await journal.store.audit(None, limit=2, cursor=first.next)
    assert (len(first.items), len(rest.items), rest.next) == (2, 1, None)
    assert len({entry.number for entry in [*first.items, *rest.items]}) == 3
    mine = await journal.store.audit(OWNER, limit=1)
    more = await journal.store.audit(OWNER, limit=1, cursor=mine.next)
    assert more.next is None
    assert len({entry.turn for entry in [*mine.items, *more.items]}) == 2
    assert (await journal.store.audit("eve", limit=5)).items == []


async def test_a_refused_deed_leaves_no_trace_in_the_audit(journal: Journal) -> None:
    attempt = await journal.parked(gate())
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    outcomes = await asyncio.gather(
        *(journal.store.decide(None, card.id, Verdict(DecisionKind.APPROVE, by=name)) for name in "abc"),
        return_exceptions=True,
    )
    (winner,) = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    (entry,) = (await journal.store.audit(None, limit=9)).items
    assert entry.by == winner.card.verdict.by  # type: ignore[union-attr]


# -- busy threads ---------------------------------------------------------------------------------------------------------


async def test_an_interrupting_message_asks_to_cancel_the_active_turn_and_waits_behind_it(journal: Journal) -> None:
    attempt = await journal.running()
    thread = attempt.turn.conversation
    behind = await journal.accept(conversation=thread, when_busy="enqueue")
    journal.heard.rings.clear()
    accepted = await journal.accept(conversation=thread, when_busy="interrupt")
    assert accepted.status is TurnStatus.WAITING
    assert "cancel" in journal.heard.rings
    assert await journal.store.cancel_requested([attempt.turn.id]) == {attempt.turn.id}
    assert not (await journal.turn(attempt.turn.id)).discards_cards
    await attempt.finish(TurnStatus.CANCELLED)
    following = await journal.claimed()
    assert following.turn.id == behind.turn, "the order of acceptance stays"
    (entry,) = (await journal.store.audit(None, limit=9)).items
    assert (entry.action, entry.turn, entry.detail) == ("cancel", attempt.turn.id, {"for_turn": accepted.turn})


async def test_an_interrupt_of_nothing_is_a_message_like_any_other(journal: Journal) -> None:
    assert (await journal.accept(when_busy="interrupt")).status is TurnStatus.QUEUED
    assert (await journal.store.audit(None, limit=9)).items == []


async def test_pending_cards_are_not_discarded_unless_that_is_said(journal: Journal) -> None:
    attempt = await journal.parked(gate(), ask("i-1"))
    thread = attempt.turn.conversation
    waiting = {card.id for card in await journal.store.cards(OWNER, attempt.turn.id)}
    for when_busy in ("reject", "interrupt"):
        with pytest.raises(TurnInProgress) as refusal:
            await journal.accept(conversation=thread, when_busy=when_busy)
        assert {*refusal.value.details["pending"]} == waiting
    assert (await journal.turn(attempt.turn.id)).cancel_requested_at is None
    assert (await journal.accept(conversation=thread, when_busy="enqueue")).status is TurnStatus.WAITING
    accepted = await journal.accept(conversation=thread, when_busy="interrupt", discard_pending=True)
    assert accepted.status is TurnStatus.WAITING
    turn = await journal.turn(attempt.turn.id)
    assert (turn.status, turn.discards_cards) == (TurnStatus.QUEUED, True)
    closed = [event for event in journal.heard.of(turn.id) if event.payload.get("state") == "closed"]
    assert {event.payload["card"] for event in closed} == waiting
    assert {card.state for card in await journal.store.cards(OWNER, turn.id)} == {CardState.CLOSED}


async def test_an_interrupt_that_discards_closes_what_the_running_turn_would_still_ask(journal: Journal) -> None:
    attempt = await journal.running()
    thread = attempt.turn.conversation
    await journal.accept(conversation=thread, when_busy="interrupt", discard_pending=True)
    await attempt.park([gate(uncertain=True)], despite_cancel=True)
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.QUEUED


async def test_a_busy_thread_is_treated_in_one_of_three_ways(journal: Journal) -> None:
    accepted = await journal.accept()
    with pytest.raises(BadRequest, match="'reject', 'enqueue', 'interrupt'"):
        await journal.accept(conversation=accepted.conversation, when_busy="rollback")
    with pytest.raises(BadRequest, match="discard_pending"):
        await journal.accept(conversation=accepted.conversation, when_busy="enqueue", discard_pending=True)


# -- what is left of a conversation ---------------------------------------------------------------------------------------


async def test_a_deleted_conversation_leaves_nothing_of_its_calls_and_cards(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    await intend(attempt, ToolCall("c-1", "tool", {"secret": "in the arguments"}, "m-1"))
    await attempt.park([gate()])
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    await journal.store.decide(OWNER, card.id, Verdict(DecisionKind.DENY, note="secret", by=OWNER))
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await journal.store.delete(OWNER, attempt.turn.conversation)
    assert await journal.store.ledger(attempt.turn.id) == ()
    assert await journal.store.verdicts(attempt.turn.id) == {}
    actions = [entry.action for entry in (await journal.store.audit(OWNER, limit=9)).items]
    assert actions == ["delete", "decide"]
    assert EventKind.APPROVAL not in {event.kind for event in await journal.store.events(attempt.turn.conversation)}


async def test_retention_drops_the_calls_of_old_turns_but_the_last(journal: Journal) -> None:
    first = await journal.running()
    await work(first)
    await intend(first, ToolCall("c-1", "tool", {}, "m-1"))
    await first.finish(TurnStatus.FAILED, BROKEN)
    await journal.accept(conversation=first.turn.conversation)
    second = await journal.claimed()
    await intend(second, ToolCall("c-1", "tool", {}, "m-1"))
    await second.finish(TurnStatus.FAILED, BROKEN)
    journal.clock.advance(86_400)
    for dry_run in (True, False):
        counts = await journal.store.prune(journal.clock.now(), dry_run=dry_run)
        assert counts["tool_calls"] == 1
    assert await journal.store.calls(OWNER, first.turn.id) == []
    assert len(await journal.store.calls(OWNER, second.turn.id)) == 1
