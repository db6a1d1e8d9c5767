"""A message said otherwise, an answer asked for again: each goes its own way, and the old one stays."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.panel.conftest import Person, conversation_of, until


def test_an_edited_message_goes_its_own_way_and_the_picker_leads_back(person: Person) -> None:
    page = person.say("/say apples")
    until(page, "completed")
    first = conversation_of(page)
    page.keyboard.press("ArrowUp")
    page.get_by_label("The message, said otherwise").fill("/say pears")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Agent")).to_contain_text("pears")
    until(page, "completed")
    assert conversation_of(page) != first
    picker = page.get_by_role("navigation", name="Branches")
    expect(picker).to_contain_text("2/2")
    picker.get_by_role("link", name="The branch before").click()
    expect(page.get_by_label("Agent")).to_contain_text("apples")
    assert conversation_of(page) == first
    expect(picker).to_contain_text("1/2")
    fork = page.get_by_label("Conversations", exact=True).get_by_role("link", name="/say apples (2)")
    expect(fork.get_by_role("img")).to_have_accessible_name("Fork of /say apples")


@pytest.mark.proof
def test_an_answer_is_asked_for_again(person: Person) -> None:
    page = person.say("/say once more")
    until(page, "completed")
    first = conversation_of(page)
    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("navigation", name="Branches")).to_contain_text("2/2")
    until(page, "completed")
    said = [(each["role"], each["content"]) for each in person.server.messages(conversation_of(page))]
    assert said == [("user", "/say once more"), ("assistant", "once more")]
    assert conversation_of(page) != first


def test_a_checkpoint_shows_what_its_step_changed_and_is_forked(person: Person) -> None:
    page = person.say("/say history")
    until(page, "completed")
    first = conversation_of(page)
    page.get_by_role("link", name="Turn", exact=True).click()
    page.get_by_text("Checkpoints").click()
    page.locator("details[data-own=true] > summary").first.click()
    expect(page.get_by_label("What this step changed")).to_contain_text("+ messages[1]")
    page.get_by_role("button", name="Fork from here").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork from here").click()
    page.wait_for_url("**/c/*")
    expect(page.get_by_label("Agent")).to_contain_text("history")
    assert conversation_of(page) != first


@pytest.mark.proof
def test_a_search_reads_the_messages(person: Person) -> None:
    page = person.say("/say a needle in a haystack")
    until(page, "completed")
    person.say("/say something else")
    until(page, "completed")
    page.keyboard.press("Control+k")
    page.keyboard.type("needle haystack")
    rows = page.get_by_label("Conversations", exact=True).get_by_role("listitem")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    expect(page.get_by_label("Agent")).to_contain_text("needle")
