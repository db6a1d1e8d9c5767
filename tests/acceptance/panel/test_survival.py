"""What a person sees outlives the tab, the network and the server: at the end it is what a calm run shows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.acceptance.conftest import ServerProcess, eventually
from tests.acceptance.panel.conftest import Person, armed, begun, conversation_of, send, shows, transcript, until

ANSWER = "/say " + " ".join(f"word{n}" for n in range(150)) + "\n\n```python\nx = 'one'\n```\n\n- a\n- b\n\nThe end."
ANSWERED, THIRD_CALL = "model_call.after:pause", "tool_call.before:pause@3"
"""Where a server stops and waits for its end: all is said and nothing of it committed; two of four steps are done."""

LONG = "/say " + " ".join(f"word{n}" for n in range(3000))
"""A minute of it: what is stopped is under way until then."""

JOB = "please do the four-step job"
HELD = re.compile("(The server does not answer|The agent cannot be reached now)\\. The message is sent again")


_calm: dict[str, str] = {}


def calm(person: Person, message: str) -> str:
    """The transcript of a run that nothing disturbs: on whichever server asked first, for it is the same on all, in both shapes."""
    if message not in _calm:
        page = person.say(message)
        until(page, "completed")
        expect(page.get_by_role("log").get_by_text("tokens in")).to_be_visible()
        _calm[message] = transcript(page)
    return _calm[message]


def missed(page: Page, server: ServerProcess) -> None:
    """The page has lost the server that was killed. An agent on NATS is not missed when it is back within seconds."""
    if server.door is server:
        expect(page.locator("[data-line=reconnecting]")).to_be_visible()


def outline(page: Page) -> list[str]:
    """What follows what in the log: messages, calls, and the line where a turn went on."""
    shown = page.locator("[role=log] > [data-kind]")
    return [str(kind) for kind in shown.evaluate_all("(all) => all.map((each) => each.dataset.kind)")]


def under_way(page: Page) -> None:
    """For what does not end by itself within a minute; see `begun`."""
    expect(page.locator("[data-live=true]")).to_contain_text("word9")


def test_a_reload_in_the_middle_of_an_answer_changes_nothing(person: Person) -> None:
    expected = calm(person, ANSWER)
    page = person.say(ANSWER)
    begun(page)
    page.reload()
    begun(page)
    until(page, "completed")
    shows(page, expected)
    page.reload()
    until(page, "completed")
    shows(page, expected)


def test_a_second_tab_shows_the_same_and_can_stop_it(person: Person) -> None:
    page = person.say(LONG)
    under_way(page)
    second = person.tab(page.url)
    under_way(second)
    second.get_by_role("button", name="Stop").click()
    until(page, "cancelled")
    until(second, "cancelled")
    shows(page, transcript(second))
    assert "cancelled here" in page.locator("[role=log]").inner_text()


@pytest.mark.proof
def test_ten_seconds_without_network_are_caught_up(person: Person) -> None:
    expected = calm(person, ANSWER)
    page = person.say(ANSWER)
    begun(page)
    person.context.set_offline(True)
    expect(page.locator("[data-line=reconnecting]")).to_be_visible()
    assert page.locator("[data-status=failed]").count() == 0
    page.wait_for_timeout(10_000)
    person.context.set_offline(False)
    until(page, "completed")
    shows(page, expected)


@pytest.mark.both_shapes
def test_a_killed_server_goes_on_with_the_answer(survivor: Person, mortal: ServerProcess) -> None:
    expected = calm(survivor, ANSWER)
    armed(mortal, ANSWERED)
    page = survivor.say(ANSWER)
    under_way(page)
    mortal.kill()
    missed(page, mortal)
    under_way(page)
    assert page.locator("[data-status=failed]").count() == 0
    mortal.start()
    until(page, "completed")
    shows(page, expected)
    divider = page.get_by_text("resumed after a restart")
    send(page, "/say next")
    expect(page.get_by_label("Agent", exact=True).get_by_text("next", exact=True)).to_be_visible()
    expect(divider).to_have_count(1)
    told = outline(page)
    page.reload()
    until(page, "completed")
    expect(divider).to_have_count(1)
    assert outline(page) == told


@pytest.mark.both_shapes
def test_a_killed_server_goes_on_with_the_job_and_no_card_comes_twice(survivor: Person, mortal: ServerProcess) -> None:
    expected = calm(survivor, JOB)
    armed(mortal, THIRD_CALL)
    page = survivor.say(JOB)
    expect(page.locator("details[data-state=done]").first).to_be_visible()
    mortal.kill()
    mortal.start()
    until(page, "completed")
    expect(page.locator("details[data-state]")).to_have_count(4)
    shows(page, expected)
    expect(page.get_by_text("ran before the restart").first).to_be_visible()
    divider = page.get_by_text("resumed after a restart")
    expect(divider).to_be_visible()
    told = outline(page)
    page.reload()
    until(page, "completed")
    expect(divider).to_be_visible()
    assert outline(page) == told


def test_stop_works_after_a_restart(survivor: Person, mortal: ServerProcess) -> None:
    page = survivor.say(LONG)
    under_way(page)
    mortal.kill()
    missed(page, mortal)
    mortal.start(PERDURE_DEMO_STEP_SECONDS="600")
    expect(page.locator("[data-line=live]")).to_be_visible()
    page.get_by_label("Message", exact=True).press("Escape")
    until(page, "cancelled")
    send(page, JOB)
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    mortal.kill()
    stop.click()
    expect(page.locator("details[data-state=error]")).to_have_count(0)
    mortal.start(PERDURE_DEMO_STEP_SECONDS="600")
    until(page, "cancelled")


def test_messages_sent_while_the_server_is_down_are_answered_once_wherever_a_person_looks_meanwhile(
    survivor: Person, mortal: ServerProcess
) -> None:
    page = survivor.say("/say first")
    until(page, "completed")
    conversation = conversation_of(page)
    mortal.kill()
    send(page, "/say second")
    send(page, "/say third")
    expect(page.get_by_text(HELD)).to_have_count(2)
    page.get_by_role("link", name="New conversation").click()
    send(page, "/say another")
    expect(page.get_by_text(HELD)).to_have_count(1)
    mortal.start()
    page.wait_for_url("**/c/*")
    expect(page.get_by_label("Agent").get_by_text("another")).to_be_visible()
    page.get_by_role("link", name="/say first").click()
    expect(page.get_by_label("Agent").get_by_text("third")).to_be_visible()
    until(page, "completed")
    said = [each["content"] for each in mortal.messages(conversation)]
    assert said == ["/say first", "first", "/say second", "second", "/say third", "third"]


@pytest.mark.proof
def test_a_page_that_is_signed_out_keeps_what_was_written_and_goes_on_after_a_new_sign_in(
    survivor: Person, mortal: ServerProcess
) -> None:
    page = survivor.say("/say first")
    until(page, "completed")
    mortal.door.kill()
    mortal.door.token_file.write_text("another-token-of-this-server")
    mortal.door.start()
    expect(page.get_by_role("alert")).to_contain_text("not signed in any more")
    send(page, "/say second")
    expect(page.get_by_text("once you have signed in again")).to_be_visible()
    page.get_by_label("Message", exact=True).fill("half a thought")
    survivor.tab(survivor.link())
    expect(page.get_by_label("Agent").get_by_text("second")).to_be_visible()
    until(page, "completed")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_have_value("half a thought")


@pytest.mark.proof
def test_a_page_that_finds_no_server_comes_up_with_it(person: Person) -> None:
    page = person.say("/say hello")
    until(page, "completed")
    address = page.url
    for path in ("/", address.removeprefix(person.address)):
        page.route("**/api/**", lambda route: route.abort())
        person.open(path)
        expect(page.get_by_text("Waiting for the server…").first).to_be_visible()
        page.unroute("**/api/**")
        expect(page.get_by_role("link", name="/say hello").first).to_be_visible()
    until(page, "completed")
    expect(page.get_by_label("Agent", exact=True)).to_contain_text("hello")


@pytest.mark.proof
def test_what_a_person_began_to_write_is_there_after_a_look_elsewhere_and_a_reload(person: Person) -> None:
    page = person.say("/say hello")
    until(page, "completed")
    first = page.url
    page.get_by_label("Message", exact=True).fill("half a thought")
    person.say("restart the service")
    card, note = page.locator("[data-card]"), page.get_by_label("Note")
    expect(page.get_by_role("log").get_by_text("3 tokens in")).to_be_visible()
    note.fill("not on a Friday")
    page.get_by_role("button", name="Edit arguments").click()
    card.locator("textarea").fill('{"name": "db"}')
    note.press("Escape")
    page.get_by_role("link", name="/say hello").first.click()
    page.goto(first)
    expect(page.get_by_label("Message", exact=True)).to_have_value("half a thought")
    page.go_back()
    page.get_by_role("link", name="restart the service").first.click()
    page.reload()
    expect(card.locator("textarea")).to_have_value('{"name": "db"}')
    expect(note).to_have_value("not on a Friday")
    page.get_by_role("button", name="Deny").click()
    until(page, "completed")
    expect(page.locator("details[data-state=denied]")).to_contain_text("denied by admin")
    expect(page.get_by_label("Agent", exact=True)).to_contain_text("not on a Friday")
    assert page.evaluate("Object.values(sessionStorage).filter((each) => each.includes('Friday'))") == []


@pytest.mark.proof
def test_escape_closes_what_is_open_and_else_stops_from_anywhere(person: Person) -> None:
    page = person.say(LONG)
    under_way(page)
    page.get_by_text("Export", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="JSONL")).to_be_hidden()
    page.get_by_role("button", name="Edit").click()
    page.keyboard.press("Escape")
    expect(page.get_by_label("The message, said otherwise")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("word")
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("")
    page.keyboard.press("Escape")
    page.locator("li[data-here=true] summary").click()
    page.get_by_role("button", name="Rename").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("header .pill")).to_have_attribute("data-status", "running")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("Escape")
    until(page, "cancelled")


@pytest.mark.proof
def test_the_card_of_a_call_that_was_stopped_says_how_it_ended(person: Person) -> None:
    page = person.say("restart the service")
    expect(page.locator("[data-card]")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    until(page, "cancelled")
    expect(page.locator("details[data-state=never]")).to_contain_text("not started")
    person.say("/loop")
    expect(page.locator("details[data-state=never]")).to_have_count(1)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("details[data-state=never]")).to_have_count(0)
    until(page, "failed")
    expect(page.locator("details[data-state=error]")).to_have_count(0)


def test_a_parked_question_outlives_a_reload_a_restart_and_a_look_elsewhere(
    survivor: Person, mortal: ServerProcess
) -> None:
    done_before = len(mortal.effect_lines())
    page = survivor.say("restart the service")
    expect(page.locator("[data-card]")).to_be_visible()
    address = page.url
    page.reload()
    expect(page.locator("[data-card]")).to_be_visible()
    survivor.say("/say elsewhere")
    until(page, "completed")
    assert page.locator("[data-card]").count() == 0
    mortal.kill()
    mortal.start()
    page.goto(address)
    expect(page.locator("[data-card]")).to_have_count(1)
    page.get_by_role("button", name="Approve", exact=True).click()
    until(page, "completed")
    expect(page.locator("details[data-state=done]")).to_have_count(1)
    assert [tool for tool, _ in mortal.effect_lines()[done_before:]] == ["restart_service"]


def test_eight_live_tabs_share_what_the_browser_can_connect(person: Person) -> None:
    expected = calm(person, ANSWER)
    page = person.say(ANSWER)
    tabs = [person.tab(page.url) for _ in range(7)]
    for tab in tabs:
        until(tab, "completed")
        shows(tab, expected)


@pytest.mark.proof
def test_eight_tabs_of_eight_conversations_all_come_to_their_end(person: Person) -> None:
    expected = calm(person, ANSWER)
    tabs = [person.say(ANSWER), *(person.tab(person.address) for _ in range(7))]
    for tab in tabs[1:]:
        send(tab, ANSWER)
    for tab in tabs:
        tab.wait_for_url("**/c/*")
        expect(tab.locator("header .pill[data-status=completed]")).to_be_visible()
        expect(tab.locator("[role=log]")).to_contain_text("The end.")
        expect(tab.locator("[data-live=true]")).to_have_count(0)
        shows(tab, expected)
    assert len({conversation_of(tab) for tab in tabs}) == 8


def test_two_answers_in_reverse_order_reach_their_calls(person: Person) -> None:
    page = person.say("two services")
    expect(page.locator("[data-card]")).to_have_count(2)
    first, second = (page.locator("[data-card]").nth(n) for n in (0, 1))
    expect(first).to_contain_text("web")
    second.get_by_role("button", name="Deny").click()
    expect(page.locator("[data-card]")).to_have_count(1)
    expect(first).to_contain_text("web")
    first.get_by_role("button", name="Approve", exact=True).click()
    until(page, "completed")
    cards = page.locator("details[data-state]")
    expect(cards.filter(has_text="restart_service").nth(0)).to_have_attribute("data-state", "done")
    expect(cards.filter(has_text="restart_service").nth(1)).to_have_attribute("data-state", "denied")


def test_of_two_tabs_that_decide_at_once_one_wins_and_the_other_is_told(person: Person) -> None:
    page = person.say("restart the service")
    expect(page.locator("[data-card]")).to_be_visible()
    second = person.tab(page.url)
    expect(second.locator("[data-card]")).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    second.route("**/api/approvals/*", hold)
    second.get_by_role("button", name="Deny").click()
    eventually(lambda: second.title() and held, "the decision is held back")
    page.get_by_role("button", name="Approve", exact=True).click()
    until(page, "completed")
    held[0].continue_()
    expect(second.get_by_role("alert")).to_contain_text("admin decided first")
    expect(second.get_by_role("alert")).to_contain_text("approved")
    until(second, "completed")
    shows(second, transcript(page))
