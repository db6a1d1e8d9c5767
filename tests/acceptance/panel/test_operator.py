"""The operator's views: turns, one turn, what waits, and the server."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import ServerProcess
from tests.acceptance.panel.conftest import Person, until


def test_filters_are_in_the_address(person: Person) -> None:
    done, failed = person.server.say("/say done"), person.server.say("/loop")
    person.server.until(done["turn"], "completed")
    person.server.until(failed["turn"], "failed")
    page = person.open("/turns")
    rows = page.locator("tbody tr")
    page.get_by_label("Status").select_option("failed")
    expect(rows.filter(has_text="completed")).to_have_count(0)
    assert "status=failed" in page.url
    page.reload()
    expect(page.get_by_label("Status")).to_have_value("failed")
    expect(rows.filter(has_text="limit of steps")).not_to_have_count(0)
    expect(rows.filter(has_text="completed")).to_have_count(0)


def test_a_paused_list_stays_as_it_is(person: Person) -> None:
    said = person.server.say("/say before")
    person.server.until(said["turn"], "completed")
    page = person.open("/turns")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    before = page.locator("tbody").inner_text()
    later = person.server.say("/say later")
    person.server.until(later["turn"], "completed")
    page.get_by_label("Status").focus()
    assert page.locator("tbody").inner_text() == before
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(f"a[href$='/turns/{later['turn']}']")).to_be_visible()


@pytest.mark.proof
def test_a_turn_shows_its_attempts_and_why_they_ended(survivor: Person, mortal: ServerProcess) -> None:
    page = survivor.say("please do the four-step job")
    expect(page.locator("details[data-state=done]").first).to_be_visible()
    mortal.kill()
    mortal.start()
    until(page, "completed")
    page.get_by_role("link", name="Turn", exact=True).click()
    expect(page.get_by_role("cell", name="its process died")).to_be_visible()
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_text("Attempt 2")).to_be_visible()
    expect(timeline.get_by_text("slow_step")).to_have_count(4)
    page.go_back()
    until(page, "completed")


def test_a_turn_is_cancelled_after_a_question(person: Person) -> None:
    said = person.server.say("please do the four-step job")
    page = person.open(f"/turns/{said['turn']}")
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the turn").click()
    expect(page.locator("header .pill[data-status=cancelled]")).to_be_visible()


def test_a_turn_at_its_step_limit_is_continued(person: Person) -> None:
    page = person.say("/loop")
    until(page, "failed")
    ticks = page.locator("details[data-state=done]")
    before = ticks.count()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("header .pill[data-status=running]")).to_be_visible()
    until(page, "failed")
    assert len(person.server.effect_lines()) > before


def test_the_inbox_has_everything_that_waits_and_empties(person: Person) -> None:
    said = person.server.say("restart the service")
    person.server.until(said["turn"], "parked")
    page = person.open("/approvals")
    card = page.locator("[data-card]").filter(has=page.locator(f"a[href$='/turns/{said['turn']}']"))
    expect(card).to_be_visible()
    card.get_by_label("Note for the agent").fill("not today")
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)
    person.server.until(said["turn"], "completed")
    assert "not today" in str(person.server.messages(said["conversation"]))


def test_the_server_s_state_is_told(person: Person) -> None:
    page = person.open("/server")
    expect(page.locator("header .pill")).to_be_visible()
    expect(page.get_by_text("Database")).to_be_visible()
    expect(page.get_by_text("demo")).to_be_visible()
