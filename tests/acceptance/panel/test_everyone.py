"""The page is for everyone: by keyboard, with a screen reader, on a phone, in the dark, in another language, behind a proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.conftest import ServerProcess
from tests.acceptance.panel.conftest import Person, send, until
from tests.acceptance.panel.proxy import PrefixProxy

AXE = Path(__file__).parents[3] / "panel" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"viewport": {"width": 360, "height": 720}}
DARK_PHONE = {"color_scheme": "dark", "locale": "de-DE", **PHONE}
WORDS = Path(__file__).parents[3] / "panel" / "src" / "words"

_FINDINGS = """async () => {
  const { violations, passes } = await axe.run(document);
  return [violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(', ')}`), passes.length];
}"""

_TOLD = """() => {
  const told = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { parentElement: place, data } = walk.currentNode;
    if (!place.closest('pre, code, script, bdi, [role=log] article, aside a')) told.push(...data.split(' · '));
  }
  for (const each of document.querySelectorAll('[aria-label], [title], [placeholder]'))
    told.push(...['aria-label', 'title', 'placeholder'].map((name) => each.getAttribute(name) ?? ''));
  return told.map((each) => each.trim()).filter(Boolean);
}"""
"""What a person is told, but for the words of models, tools and other people."""


def views(person: Person) -> Iterator[Page]:
    """Every view with something in it, opened: in whatever language."""
    server, page = person.server, person.open("/")
    yield page
    said = server.say('/call slow_step {"label": "x"}')
    server.until(said["turn"], "completed")
    person.open(f"/c/{said['conversation']}")
    until(page, "completed")
    page.locator("details[data-state=done] summary").click()
    yield page
    server.say("two services", conversation=said["conversation"])
    expect(page.locator("[data-card]")).to_have_count(2)
    page.get_by_role("button", name=re.compile("Edit arguments|Argumente ändern")).first.click()
    yield page
    for path in ("/approvals", "/turns", "/server"):
        person.open(path)
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        expect(page.locator("main .pill, main [data-card]").first).to_be_visible()
        yield page
    person.open(f"/turns/{said['turn']}")
    expect(page.locator("[data-kind=step]").first).to_be_visible()
    page.locator("main section > details > summary").click()
    page.locator("summary:has(h2)").click()
    page.locator("details[data-own=true] > summary").first.click()
    expect(page.locator("[data-kind=added], [data-kind=changed]").first).to_be_visible()
    page.locator("main > div > details > summary").last.click()
    yield page
    loop = server.say("/loop")
    server.until(loop["turn"], "failed")
    person.open(f"/turns/{loop['turn']}")
    page.get_by_role("button", name=re.compile("^(Continue|Weiter)$")).click()
    expect(page.get_by_role("dialog")).to_be_visible()
    yield page
    person.open("/c/nothing")
    expect(page.locator("main [role=status] a")).to_be_visible()
    yield page


def strings(language: str) -> set[str]:
    """Those of the page's catalogue that take nothing."""
    source = (WORDS / f"{language}.ts").read_text()
    return {json.loads(found) for found in re.findall(r':\s+("(?:[^"\\]|\\.)*"),$', source, re.MULTILINE)}


def names() -> set[str]:
    """What things are called between programs: states, kinds, outcomes. No word for a person."""
    source = (WORDS.parent / "api" / "schema.ts").read_text()
    return set(re.findall(r'"(\w+)"', source))


@pytest.mark.skipif(not AXE.is_file(), reason="NO AXE: accessibility is not tested. Run: make panel")
@pytest.mark.parametrize(
    "person", [pytest.param({"color_scheme": "light"}, marks=pytest.mark.proof), DARK_PHONE], indirect=True
)
def test_axe_finds_nothing_in_any_view_none_is_wider_than_its_window_and_each_speaks_one_language(
    person: Person,
) -> None:
    german = strings("de")
    foreign = (strings("en") | names()) - german - {"English"}
    for page in views(person):
        page.evaluate(AXE.read_text())
        findings, passed = page.evaluate(_FINDINGS)
        assert findings == [], page.url
        assert passed > 10
        widths: Any = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1], page.url
        told = set(page.evaluate(_TOLD))
        if page.locator("html").get_attribute("lang") == "de":
            assert told & foreign == set(), page.url
            assert told & german
        else:
            assert told & (german - strings("en")) <= {"Deutsch"}, page.url


@pytest.mark.parametrize("person", [PHONE], indirect=True)
def test_a_phone_has_the_lists_behind_a_button(person: Person) -> None:
    page = person.open("/")
    page.get_by_role("button", name="Conversations").click()
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_role("heading", name="Turns")).to_be_visible()
    expect(page.get_by_role("link", name="Server")).not_to_be_visible()


def test_the_keyboard_is_enough(person: Person) -> None:
    page = person.open("/")
    field = page.get_by_label("Message", exact=True)
    expect(field).to_be_focused()
    page.keyboard.type("/say one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    until(page, "completed")
    expect(page.get_by_label("Agent")).to_contain_text("two")
    expect(field).to_be_focused()
    page.keyboard.press("ArrowUp")
    edited = page.get_by_label("The message, said otherwise")
    expect(edited).to_be_focused()
    expect(edited).to_have_value("/say one\ntwo")
    page.keyboard.press("Escape")
    expect(edited).to_have_count(0)
    expect(field).to_be_focused()
    page.get_by_role("button", name="Edit").press("Enter")
    edited.press("Escape")
    expect(page.get_by_role("button", name="Edit")).to_be_focused()
    menu = page.locator("aside li summary").first
    menu.press("Enter")
    page.get_by_role("button", name="Rename").press("Enter")
    page.get_by_role("dialog").press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(menu).to_be_focused()
    field.fill("/say " + "word " * 3_000)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.keyboard.press("Escape")
    until(page, "cancelled")


@pytest.mark.proof
def test_a_message_sent_meanwhile_waits_its_turn_or_is_taken_back(person: Person) -> None:
    page = person.say("restart the service")
    expect(page.locator("[data-card]")).to_be_visible()
    send(page, "/say next")
    expect(page.get_by_role("button", name="Take back")).to_have_count(1)
    send(page, "/say never")
    expect(page.get_by_role("button", name="Take back")).to_have_count(2)
    page.reload()
    expect(page.get_by_label("You").filter(has_text="/say never")).to_have_count(1)
    page.get_by_role("button", name="Take back").nth(1).click()
    expect(page.get_by_role("button", name="Take back")).to_have_count(1)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_label("Agent").filter(has_text="next")).to_be_visible()
    until(page, "completed")
    expect(page.get_by_label("Agent").filter(has_text="never")).to_have_count(0)


def test_the_end_of_an_answer_is_announced_not_its_words(person: Person) -> None:
    page = person.say("/say a few words")
    expect(page.get_by_role("log")).to_have_attribute("aria-live", "off")
    expect(page.get_by_role("status").filter(has_text="The answer is complete.")).to_have_count(1)


@pytest.mark.proof
@pytest.mark.parametrize("person", [{"locale": "de-DE"}], indirect=True)
def test_the_page_speaks_the_browser_s_language_and_keeps_what_was_chosen(person: Person) -> None:
    page = person.open("/")
    expect(page.get_by_role("button", name="Senden")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == "de"
    loop = person.server.say("/loop")
    person.server.until(loop["turn"], "failed")
    person.open(f"/c/{loop['conversation']}")
    why = page.locator("[data-bad]")
    expect(why).to_contain_text("Der Lauf hat seine Grenze der Schritte erreicht.")
    expect(why.locator("[lang=en]")).to_contain_text("its limit is")
    page.get_by_label("Sprache").select_option("en")
    page.reload()
    expect(page.get_by_role("button", name="Send")).to_be_visible()


@pytest.mark.proof
@pytest.mark.parametrize("person", [{"color_scheme": "light"}], indirect=True)
def test_a_chosen_theme_is_kept(person: Person) -> None:
    page = person.open("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_the_page_works_under_a_prefix(browser: Browser, steady: ServerProcess, person: Person) -> None:
    with PrefixProxy(steady.address, "/agents") as proxy:
        context = browser.new_context(storage_state=person.context.storage_state(), locale="en-GB")
        beyond: list[str] = []
        context.on("request", lambda request: beyond.append(request.url))
        page = context.new_page()
        page.goto(f"{proxy.address}/agents/")
        send(page, "/say through the proxy")
        page.wait_for_url("**/agents/c/*")
        until(page, "completed")
        page.reload()
        until(page, "completed")
        page.get_by_role("link", name="Turn", exact=True).click()
        expect(page.get_by_role("region", name="Timeline")).to_be_visible()
        page.reload()
        expect(page.get_by_role("region", name="Timeline")).to_be_visible()
        context.close()
        assert all(url.startswith(f"{proxy.address}/agents/") for url in beyond), beyond
