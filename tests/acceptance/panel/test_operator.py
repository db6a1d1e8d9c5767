"""The operator's views: turns, one turn, what waits, and the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import ServerProcess, eventually
from tests.acceptance.panel.conftest import Person, armed, new_server, served, until


@pytest.fixture(scope="module")
def steady(shape: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Its agent has an MCP server that cannot be started."""
    folder = tmp_path_factory.mktemp("page")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"absent": {"command": str(folder / "nothing")}}}))
    yield from served(new_server(folder, shape, PERDURE_MCP_CONFIG=str(config)))


def test_filters_are_in_the_address_and_follow_back_and_forward(person: Person) -> None:
    done, failed = person.server.say("/say zebra"), person.server.say("/loop")
    person.server.until(done["turn"], "completed")
    person.server.until(failed["turn"], "failed")
    page = person.open("/turns")
    rows, status, text = (
        page.locator("tbody tr"),
        page.get_by_role("combobox", name="Status"),
        page.get_by_label("Text"),
    )
    first = page.locator(f"tbody a[href$='{done['turn']}']")
    expect(first).to_be_visible()
    status.select_option("failed")
    expect(first).to_have_count(0)
    expect(rows.filter(has_text="limit of steps")).not_to_have_count(0)
    page.get_by_role("link", name="1 failed").click()
    expect(first).to_be_visible()
    text.fill("zebra")
    text.press("Enter")
    expect(rows).to_have_count(1)
    assert "q=zebra" in page.url and "status" not in page.url
    expect(text).to_be_focused()
    page.get_by_label("More than one attempt").check()
    expect(page.get_by_text("No turn is like this.")).to_be_visible()
    page.reload()
    expect(text).to_have_value("zebra")
    expect(page.get_by_label("More than one attempt")).to_be_checked()
    page.go_back()
    expect(page.get_by_label("More than one attempt")).not_to_be_checked()
    expect(rows).to_have_count(1)
    page.go_back()
    expect(text).to_have_value("")
    page.go_back()
    expect(status).to_have_value("failed")
    expect(first).to_have_count(0)
    page.go_forward()
    page.go_forward()
    expect(text).to_have_value("zebra")
    expect(status).to_have_value("")
    page.get_by_role("link", name="Turns").click()
    expect(text).to_have_value("")
    expect(rows).not_to_have_count(1)


@pytest.mark.proof
def test_a_paused_list_stays_as_it_is_with_its_numbers(person: Person) -> None:
    for text in ("first", "before"):
        said = person.server.say(f"/say {text}")
        person.server.until(said["turn"], "completed")
    page = person.open("/turns")
    expect(page.locator(f"tbody a[href$='{said['turn']}']")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    numbers = page.get_by_role("list", name="Status")
    before, counted = page.locator("tbody").inner_text(), numbers.inner_text()
    later = person.server.say("/say later")
    person.server.until(later["turn"], "completed")
    expect(page.locator("aside").get_by_text("/say later")).to_be_visible()
    assert (page.locator("tbody").inner_text(), numbers.inner_text()) == (before, counted)
    page.get_by_label("Text").fill("later")
    page.get_by_label("Text").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.go_back()
    expect(page.locator("tbody tr")).not_to_have_count(1)
    assert page.locator("tbody").inner_text() == before
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(f"a[href$='/turns/{later['turn']}']")).to_be_visible()
    expect(numbers).not_to_have_text(counted, use_inner_text=True)


_STEPS = ["Attempt 1", "model", *["tools", "slow_step", "model"] * 4]


def test_a_turn_is_drawn_while_it_runs_and_the_same_after_its_end(person: Person) -> None:
    said = person.server.say("please do the four-step job")
    page = person.open(f"/turns/{said['turn']}")
    names = page.get_by_role("region", name="Timeline").locator("li bdi")
    expect(names).to_have_text(_STEPS)
    expect(page.locator("header .pill[data-status=completed]")).to_be_visible()
    expect(page.get_by_role("cell", name="completed")).to_be_visible()
    page.reload()
    expect(names).to_have_text(_STEPS)
    bars = page.locator("li [data-kind][data-state]").evaluate_all("bars => bars.map(bar => bar.dataset.state)")
    assert set(bars) == {"completed", "done", "success"}
    assert page.title() == f"Turn {said['turn'][:8]} · Perdure"


@pytest.mark.proof
def test_a_turn_whose_process_died_is_driven_again_by_a_person_and_shows_why(
    survivor: Person, mortal: ServerProcess
) -> None:
    armed(mortal, "tool_call.before:pause@3")
    page = survivor.say("please do the four-step job")
    expect(page.locator("details[data-state=done]").first).to_be_visible()
    mortal.kill()
    mortal.start(PERDURE_REDRIVE="manual")
    until(page, "interrupted")
    page.get_by_role("link", name="Turn", exact=True).click()
    page.get_by_role("button", name="Re-drive").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Re-drive").click()
    page.get_by_role("dialog").get_by_role("button", name="Re-drive").click()
    expect(page.locator("header .pill[data-status=completed]")).to_be_visible()
    expect(page.get_by_role("cell", name="its process died")).to_be_visible()
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_text("Attempt 2")).to_be_visible()
    expect(timeline.get_by_text("slow_step")).to_have_count(4)
    page.go_back()
    until(page, "completed")


@pytest.mark.proof
def test_a_turn_is_cancelled_after_a_question(person: Person) -> None:
    said = person.server.say(f"/say {'word ' * 3_000}")
    page = person.open(f"/turns/{said['turn']}")
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the turn").click()
    expect(page.locator("header .pill[data-status=cancelled]")).to_be_visible()


@pytest.mark.proof
def test_a_turn_that_waits_behind_another_is_cancelled_before_it_begins(person: Person) -> None:
    asked = person.server.say("restart the service")
    person.server.until(asked["turn"], "parked")
    behind = person.server.say("/say behind", conversation=asked["conversation"], when_busy="enqueue")
    page = person.open(f"/turns/{behind['turn']}")
    expect(page.get_by_text("It has not begun yet.")).to_be_visible()
    page.get_by_role("button", name="Cancel the turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the turn").click()
    expect(page.locator("header .pill[data-status=cancelled]")).to_be_visible()
    expect(page.get_by_text("It ended before it began.")).to_be_visible()


@pytest.mark.proof
def test_a_turn_at_its_step_limit_is_continued(person: Person) -> None:
    page = person.say("/loop")
    until(page, "failed")
    ticks = page.locator("details[data-state=done]")
    shown, done = ticks.count(), len(person.server.effect_lines())
    page.get_by_role("button", name="Continue").click()
    eventually(lambda: len(person.server.effect_lines()) > done, "it goes on")
    expect(ticks).not_to_have_count(shown)
    until(page, "failed")


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


@pytest.mark.proof
def test_what_was_deleted_leaves_every_view(person: Person) -> None:
    asked = person.server.say("restart the service")
    person.server.until(asked["turn"], "parked")
    turn = person.open(f"/turns/{asked['turn']}")
    inbox, turns = (person.tab(f"{person.address}/{view}") for view in ("approvals", "turns"))
    link = f"main a[href$='/turns/{asked['turn']}']"
    expect(turn.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    for page in (inbox, turns):
        expect(page.locator(link)).to_be_visible()
    assert person.server.request("DELETE", f"/api/conversations/{asked['conversation']}?cancel=1").status_code == 204
    for page in (inbox, turns):
        expect(page.locator(link)).to_have_count(0)
    expect(turn.get_by_text("This turn was deleted with its conversation.")).to_be_visible()
    turn.reload()
    expect(turn.get_by_text("There is no turn at this address")).to_be_visible()


def test_the_server_s_state_is_told(person: Person) -> None:
    said = person.server.say("/say something")
    person.server.until(said["turn"], "completed")
    page = person.open("/server")
    expect(page.locator("header .pill")).to_have_text("degraded")
    expect(page.get_by_role("region", name="Workers").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_text("absent", exact=True)).to_be_visible()
    expect(page.get_by_text("failing", exact=True)).to_be_visible()
    expect(page.locator("dd").filter(has_text=re.compile(r"^[\d.]+ [KM]B$"))).to_have_count(2)
    expect(page.get_by_text(str(person.server.database))).to_be_visible()


@pytest.mark.proof
def test_a_view_that_cannot_be_read_yet_says_so_and_comes_back(person: Person) -> None:
    page = person.open("/server")
    expect(page.locator("header .pill")).to_be_visible()
    page.context.set_offline(True)
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_text("Waiting for the server…")).to_be_visible()
    page.context.set_offline(False)
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_text("Waiting for the server…")).to_have_count(0)
