"""Cards that are no approvals: a call whose outcome nobody knows, and a question of a graph's own. And a graph that says much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.conftest import ServerProcess, eventually
from tests.acceptance.panel.conftest import Person, new_server, send, served, signed_in, until

GRAPHS = """
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def ask(state: MessagesState):
    said = interrupt({"question": "How <b>many</b>?"})
    return {"messages": [("ai", f"You said {said!r}.")]}


def talk(state: MessagesState):
    return {"messages": [("ai", f"message {n}.") for n in range(2000)]}


asker = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
talker = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()
"""
AGENTS = '{"graphs": {"asker": "./graphs.py:asker", "talker": "./graphs.py:talker"}, "dependencies": ["."]}'


@pytest.fixture
def suspect(survivor: Person, mortal: ServerProcess) -> Person:
    """Looks at a call that was cut behind its effect."""
    mortal.kill()
    mortal.start(PERDURE_DEMO_EFFECT_PAUSE_SECONDS="600")
    survivor.say("charge the card")
    eventually(mortal.effect_lines, "the card was charged")
    mortal.kill()
    mortal.start()
    return survivor


@pytest.fixture(scope="module")
def graphs(shape: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = new_server(tmp_path_factory.mktemp("graphs"), shape, agents=("asker", "talker"))
    (server.folder / "graphs.py").write_text(GRAPHS)
    (server.folder / "langgraph.json").write_text(AGENTS)
    yield from served(server)


@pytest.fixture
def guest(browser: Browser, graphs: ServerProcess) -> Iterator[Person]:
    yield from signed_in(browser, graphs, {})


def test_a_call_that_a_person_saw_happen_is_not_made_again(suspect: Person) -> None:
    page = suspect.page
    card = page.locator("[data-card][data-kind=uncertain]")
    expect(card).to_contain_text("charge_card")
    card.get_by_label("What it gave").fill("paid 5")
    card.get_by_role("button", name="It happened").click()
    until(page, "completed")
    expect(page.get_by_label("Agent")).to_contain_text("paid 5")
    expect(page.locator("details[data-state=done]")).to_have_count(1)
    assert len(suspect.server.effect_lines()) == 1


@pytest.mark.proof
def test_a_call_that_nobody_can_tell_of_is_given_up(suspect: Person) -> None:
    page = suspect.page
    card = page.locator("[data-card][data-kind=uncertain]")
    card.get_by_label("Note").fill("the bank is closed")
    card.get_by_role("button", name="Give up").click()
    until(page, "completed")
    expect(page.locator("details[data-state=unknown]")).to_have_count(1)
    assert "the bank is closed" in str(suspect.server.messages(page.url.rpartition("/")[2]))
    assert len(suspect.server.effect_lines()) == 1


@pytest.mark.parametrize(
    ("said", "heard"), [("7", "You said 7."), pytest.param("a few", "You said 'a few'.", marks=pytest.mark.proof)]
)
def test_a_question_of_a_graph_is_shown_as_it_is_and_answered(guest: Person, said: str, heard: str) -> None:
    asked = guest.server.say("go", agent="asker")
    page = guest.open(f"/c/{asked['conversation']}")
    card = page.locator("[data-card][data-kind=interrupt]")
    expect(card).to_contain_text("How <b>many</b>?")
    card.get_by_label("Answer (JSON, or plain text)").fill(said)
    card.get_by_role("button", name="Answer", exact=True).click()
    until(page, "completed")
    expect(page.get_by_label("Agent", exact=True)).to_contain_text(heard)


@pytest.mark.proof
def test_a_message_goes_to_the_agent_that_the_list_shows(guest: Person) -> None:
    page = guest.open("/")
    shown = page.get_by_role("combobox", name="Agent")
    expect(shown).to_have_value("asker")
    guest.say("go")
    expect(page.locator("[data-card][data-kind=interrupt]")).to_be_visible()
    page.get_by_role("link", name="New conversation").click()
    shown.select_option("talker")
    send(page, "go")
    expect(page.get_by_text("message 1999.", exact=True)).to_be_in_viewport()


def test_of_two_thousand_messages_those_near_the_window_are_in_the_page(guest: Person) -> None:
    said = guest.server.say("go", agent="talker")
    guest.server.until(said["turn"], "completed")
    page = guest.open(f"/c/{said['conversation']}")
    rows = page.locator("[role=log] [data-index]")
    expect(page.get_by_text("message 1999.", exact=True)).to_be_in_viewport()
    assert rows.count() < 60
    page.locator("[role=log]").hover()
    page.mouse.wheel(0, -10_000_000)
    expect(page.get_by_text("message 0.", exact=True)).to_be_in_viewport()
    assert rows.count() < 60
    page.get_by_role("button", name="To the newest").click()
    expect(page.get_by_text("message 1999.", exact=True)).to_be_in_viewport()
