"""The list of conversations: new, search, rename, delete, and how each of them is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import eventually
from tests.acceptance.panel.conftest import Person, conversation_of, until


@pytest.fixture
def titled(person: Person) -> Person:
    person.say("/say apples")
    until(person.page, "completed")
    person.say("/say pears")
    until(person.page, "completed")
    return person


@pytest.mark.proof
def test_a_search_finds_titles(titled: Person) -> None:
    page = titled.page
    page.keyboard.press("Control+k")
    page.keyboard.type("PEAR")
    rows = page.get_by_label("Conversations", exact=True).get_by_role("listitem")
    expect(rows).to_contain_text(["pears"])
    expect(rows.filter(has_text="apples")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(rows.filter(has_text="apples")).not_to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.press("Control+k")
    page.keyboard.type("PEAR")
    expect(page.get_by_role("searchbox")).to_have_value("PEAR")


def test_a_conversation_is_renamed_in_every_tab(titled: Person) -> None:
    page = titled.page
    second = titled.tab(page.url)
    page.get_by_label("Actions for /say pears").first.click()
    page.get_by_role("button", name="Rename").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New title").fill("fruit <b>salad</b>")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    for tab in (page, second):
        expect(tab.get_by_role("heading", name="fruit <b>salad</b>")).to_be_visible()


@pytest.mark.proof
def test_a_conversation_is_deleted_after_a_question(titled: Person) -> None:
    page = titled.page
    gone = conversation_of(page)
    second = titled.tab(page.url)
    page.get_by_label("Actions for /say pears").first.click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert titled.server.get(f"/api/conversations/{gone}").status_code == 200
    page.get_by_label("Actions for /say pears").first.click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{titled.address}/")
    expect(second.get_by_text("This conversation was deleted.")).to_be_visible()
    eventually(lambda: titled.server.get(f"/api/conversations/{gone}").status_code == 404, "it is deleted")
    second.reload()
    expect(second.get_by_text("There is no conversation at this address")).to_be_visible()


def test_an_address_of_nothing_says_so_and_leads_on(person: Person) -> None:
    for path, told, way, there in (
        ("/c/nothing", "There is no conversation at this address, or none that you may see.", "Back to the chat", "/"),
        ("/turns/nothing", "There is no turn at this address, or none that you may see.", "Show all turns", "/turns"),
        ("/turns?status=nothing", "The server does not take this as it was sent.", "Show all turns", "/turns"),
        ("/turns?agent=nothing", "No turn is like this.", "Show all turns", "/turns"),
        ("/turns/nothing/at/all", "There is nothing here.", "Back to the chat", "/"),
    ):
        page = person.open(path)
        expect(page.get_by_role("main").get_by_text(told)).to_be_visible()
        page.get_by_role("link", name=way).click()
        page.wait_for_url(f"{person.address}{there}")
    assert "must be one of waiting, queued" in person.open("/turns?status=nothing").get_by_role("alert").inner_text()


@pytest.mark.proof
def test_a_conversation_in_which_a_turn_has_begun_meanwhile_is_deleted_after_another_question(titled: Person) -> None:
    page = titled.page
    conversation = conversation_of(page)

    def begin(route: Route) -> None:
        turn = titled.server.say("restart the service", conversation=conversation)["turn"]
        titled.server.until(turn, "parked")
        route.continue_()

    page.route(f"**/api/conversations/{conversation}", begin, times=1)
    page.locator("li[data-here=true] summary").click()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("begun meanwhile")
    dialog.get_by_role("button", name="Cancel the turn and delete").click()
    page.wait_for_url(f"{titled.address}/")
    eventually(lambda: titled.server.get(f"/api/conversations/{conversation}").status_code == 404, "it is deleted")


def test_a_dot_tells_of_what_runs_waits_and_failed(person: Person) -> None:
    row = person.page.locator("li[data-here=true]")
    person.say("restart the service")
    expect(row.get_by_role("img", name="waiting for you")).to_be_visible()
    person.say("/say " + "word " * 3_000)
    expect(row.get_by_role("img", name="running")).to_be_visible()
    person.page.keyboard.press("Escape")
    until(person.page, "cancelled")
    person.say("/say done")
    until(person.page, "completed")
    expect(row.get_by_role("img")).to_have_count(0)
    person.say("/loop")
    expect(row.get_by_role("img", name="failed")).to_be_visible()


@pytest.mark.proof
def test_a_conversation_is_exported(titled: Person) -> None:
    page = titled.page
    page.get_by_text("Export").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="Markdown").click()
    assert "pears" in started.value.path().read_text()
