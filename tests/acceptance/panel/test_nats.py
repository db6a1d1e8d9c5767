"""What only agents on NATS can do to a page: be away, lose NATS, lose the gateway, be followed no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.apart import ApartProcess
from tests.acceptance.conftest import eventually
from tests.acceptance.panel.conftest import Person, begun, send, shows, signed_in, transcript, until
from tests.acceptance.panel.test_survival import ANSWER, LONG, calm, under_way

_VANISHES = """(text) => {
  window.vanished = false;
  const look = () => { window.vanished ||= !document.body.innerText.includes(text); };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
"""Sees that a text was not there for a moment, however short."""


@pytest.fixture
def onlooker(browser: Browser, trio: ApartProcess) -> Iterator[Person]:
    for _ in trio.lent():
        yield from signed_in(browser, trio, {})


def nothing_failed(page: Page) -> None:
    assert page.locator("[data-status=failed], [data-bad], .error").count() == 0


def test_a_page_says_that_nats_is_lost_and_goes_on_when_it_is_back(onlooker: Person, trio: ApartProcess) -> None:
    expected = calm(onlooker, ANSWER)
    page = onlooker.say(ANSWER)
    begun(page)
    trio.nats.kill()
    expect(page.locator("[data-line=disconnected]")).to_have_text("NATS disconnected")
    expect(page.get_by_text("This server has lost NATS")).to_be_visible()
    begun(page)
    nothing_failed(page)
    trio.start_nats()
    until(page, "completed")
    shows(page, expected)
    expect(page.get_by_text("This server has lost NATS")).to_have_count(0)
    expect(page.get_by_text("resumed after a restart")).to_have_count(0)


@pytest.mark.proof
def test_a_killed_gateway_goes_on_with_the_answer(onlooker: Person, trio: ApartProcess) -> None:
    expected = calm(onlooker, ANSWER)
    page = onlooker.say(ANSWER)
    begun(page)
    trio.gateway.kill()
    expect(page.locator("[data-line=reconnecting]")).to_be_visible()
    begun(page)
    nothing_failed(page)
    trio.gateway.start()
    until(page, "completed")
    shows(page, expected)
    expect(page.get_by_text("resumed after a restart")).to_have_count(0)


def test_a_parked_question_outlives_agent_gateway_and_nats_and_is_answered_by_one_who_was_away(
    onlooker: Person, trio: ApartProcess
) -> None:
    page = onlooker.say("restart the service")
    card = page.locator("[data-card]")
    expect(card).to_be_visible()
    for blow in (trio.kill, trio.gateway.kill, trio.nats.kill):
        blow()
        trio.start()
        page.reload()
        expect(page.locator("[data-line=live]")).to_be_visible()
        expect(card).to_have_count(1)
    trio.stop()
    expect(page.locator("[data-line=unreachable]")).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(card.get_by_role("status")).to_contain_text("The decision is sent again until it can be")
    nothing_failed(page)
    trio.start()
    until(page, "completed")
    expect(page.locator("details[data-state=done]")).to_have_count(1)
    assert [tool for tool, _ in trio.effect_lines()] == ["restart_service"]


@pytest.mark.proof
def test_stop_says_why_it_waits_for_an_agent_that_is_away(onlooker: Person, trio: ApartProcess) -> None:
    page = onlooker.say(LONG)
    under_way(page)
    trio.kill()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("It is told to stop as soon as it can be.")).to_be_visible()
    expect(page.locator("[data-line=unreachable]")).to_have_text("agent unreachable")
    nothing_failed(page)
    trio.start()
    until(page, "cancelled")
    expect(page.get_by_text("It is told to stop as soon as it can be.")).to_have_count(0)


def test_a_conversation_is_read_while_its_agent_is_away_and_what_is_sent_waits(
    onlooker: Person, trio: ApartProcess
) -> None:
    page = onlooker.say("/say before")
    until(page, "completed")
    trio.stop()
    expect(page.locator("[data-line=unreachable]")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Agent", exact=True)).to_contain_text("before")
    expect(page.locator("[data-copy=true]")).to_contain_text("This is a copy")
    page.get_by_text("Export", exact=True).click()
    expect(page.get_by_text("JSONL: when the agent is back")).to_be_visible()
    with page.expect_download() as started:
        page.get_by_role("link", name="Markdown").click()
    assert "before" in started.value.path().read_text()
    send(page, "/say after")
    expect(page.get_by_text("The agent cannot be reached now. The message is sent again")).to_be_visible()
    nothing_failed(page)
    second = onlooker.tab(page.url)
    second.get_by_role("link", name="Turn", exact=True).click()
    expect(second.locator("header [data-reach=unreachable]")).to_be_visible()
    second.locator("summary:has(h2)").click()
    expect(second.get_by_text("The agent is away, and it alone knows this.")).to_be_visible()
    third = onlooker.tab(f"{onlooker.address}/server")
    expect(third.locator("dd [data-reach=unreachable]")).to_have_text("agent unreachable")
    fourth = onlooker.tab(onlooker.address)
    expect(fourth.locator("main [data-line=unreachable]")).to_be_visible()
    for tab in (second, third, fourth):
        nothing_failed(tab)
    trio.start()
    expect(page.get_by_label("Agent", exact=True).nth(1)).to_contain_text("after")
    until(page, "completed")
    expect(page.locator("[data-copy]")).to_have_count(0)
    expect(second.locator("details[data-own=true]").first).to_be_visible()
    for tab in (second, third, fourth):
        expect(tab.locator("[data-reach], [data-line=unreachable]")).to_have_count(0)


@pytest.mark.proof
def test_an_agent_that_was_taken_away_is_forgotten_and_is_back_with_all_it_had_when_it_starts(
    onlooker: Person, trio: ApartProcess
) -> None:
    page = onlooker.say("/say before")
    until(page, "completed")
    trio.stop()
    second, third = (onlooker.tab(f"{onlooker.address}/server") for _ in range(2))
    second.get_by_role("button", name="Forget…").click()
    dialog = second.get_by_role("dialog", name="Forget demo?")
    expect(dialog).to_contain_text("At the agent nothing is deleted")
    dialog.get_by_role("button", name="Forget it").click()
    for tab in (second, third):
        expect(tab.get_by_role("button", name="Forget…")).to_have_count(0)
        expect(tab.get_by_text("demo")).to_have_count(0)
    expect(page.get_by_text("This conversation was deleted.")).to_be_visible()
    assert trio.get("/api/agents").json() == {"items": []}
    assert trio.get("/api/conversations").json()["items"] == []
    trio.start()
    expect(third.get_by_text("demo").first).to_be_visible()
    page.reload()
    expect(page.get_by_label("Agent", exact=True)).to_contain_text("before")
    send(page, "/say after")
    until(page, "completed")
    nothing_failed(page)


@pytest.mark.proof
def test_a_turn_that_is_followed_no_more_has_not_failed_and_is_asked_for_again(
    onlooker: Person, trio: ApartProcess
) -> None:
    trio.gateway.kill()
    trio.gateway.start(PERDURE_TURN_DEADLINE_SECONDS="1")
    page = onlooker.say(LONG)
    expect(page.locator("[data-line=unfollowed]")).to_have_text("not followed")
    expect(page.locator("header .pill[data-status=running]")).to_be_visible()
    nothing_failed(page)
    told = page.get_by_text("follows it no more")
    second = onlooker.tab(page.url)
    expect(second.get_by_text("follows it no more")).to_be_visible()
    page.evaluate(_VANISHES, "follows it no more")
    second.get_by_role("button", name="Ask again").click()
    eventually(lambda: page.evaluate("() => window.vanished"), "it is followed again")
    expect(told).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    until(page, "cancelled")
    until(second, "cancelled")
    shows(page, transcript(second))
    expect(told).to_have_count(0)
    trio.gateway.kill()
