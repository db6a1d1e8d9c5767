"""The built page in a real browser, on a real server: embedded, and behind a gateway with its agent on NATS."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, expect, sync_playwright

from perdure.panel.pages import BUILT
from tests.acceptance.apart import ApartProcess
from tests.acceptance.conftest import ServerProcess, eventually
from tests.servers.process import free_port

PATIENCE_MS = 60_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

expect.set_options(timeout=PATIENCE_MS)

STATUS = "header .pill"

Served = TypeVar("Served", bound=ServerProcess)

_VARIABLES = {"PERDURE_DEMO_TOKEN_SECONDS": "0.02"}

_TRANSCRIPT = """() => {
  const log = document.querySelector('[role=log]').cloneNode(true);
  for (const mark of log.querySelectorAll('[data-mark], [data-kind=divider]')) mark.remove();
  for (const element of [log, ...log.querySelectorAll('*')]) {
    element.removeAttribute('style');
    element.removeAttribute('data-index');
    element.removeAttribute('data-edit');
  }
  return log.innerHTML;
}"""
"""All of the log but what tells of attempts and times, where the browser put it, and whose it is."""


EMBEDDED, NATS = "embedded", "nats"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_shapes: in `make test`, too, on NATS as well as embedded")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of the page runs in both shapes; most of them on NATS in `make proof` alone."""
    if "shape" in metafunc.fixturenames:
        marks = [] if metafunc.definition.get_closest_marker("both_shapes") else [pytest.mark.proof]
        metafunc.parametrize("shape", [EMBEDDED, pytest.param(NATS, marks=marks)], scope="module")


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """For one module: it keeps an event loop of its own, in which no other test may find itself."""
    if CHROMIUM is None:
        pytest.skip("NO BROWSER: the page is not tested. Install Chromium (Debian: apt-get install chromium).")
    if not (BUILT / "index.html").is_file():
        pytest.skip("NO PAGE: it is not built and so not tested. Build it with: make panel")
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    yield browser
    browser.close()


class Person:
    """A browser that is signed in, and what must never happen in it."""

    def __init__(self, context: BrowserContext, server: ServerProcess) -> None:
        self.context = context
        self.server = server
        self.address = server.address
        self.foreign: list[str] = []
        self.faults: list[str] = []
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", self._on_request)
        context.on("weberror", lambda error: self.faults.append(str(error.error)))
        context.on("console", lambda message: self._on_console(message.type, message.text))
        context.on("dialog", lambda dialog: self.faults.append(f"a dialog: {dialog.message}"))
        self.page = context.new_page()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.address}/", "blob:")):
            self.foreign.append(request.url)

    def _on_console(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not text.startswith("Failed to load resource"):
            self.faults.append(text)

    def sign_in(self) -> None:
        self.page.goto(self.link())

    def link(self) -> str:
        """The one that the server printed last."""
        return str(re.findall(r"http://\S+/login\?key=\S+", self.server.door.log())[-1])

    def open(self, path: str = "/") -> Page:
        self.page.goto(f"{self.address}{path}")
        return self.page

    def tab(self, address: str) -> Page:
        page = self.context.new_page()
        page.goto(address)
        return page

    def say(self, text: str) -> Page:
        """In a new conversation."""
        self.open("/")
        send(self.page, text)
        self.page.wait_for_url("**/c/*")
        return self.page


def send(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def until(page: Page, status: str) -> None:
    """The header says so, and the line has caught up."""
    expect(page.locator(f"{STATUS}[data-status={status}]")).to_be_visible()
    expect(page.locator("[data-line=live]")).to_be_visible()
    expect(page.locator("[data-live=true]")).to_have_count(0)


def transcript(page: Page) -> str:
    return str(page.evaluate(_TRANSCRIPT))


def begun(page: Page) -> None:
    """The agent has said so many words, and may have ended since."""
    expect(page.get_by_label("Agent", exact=True).last).to_contain_text("word9")


def shows(page: Page, expected: str) -> None:
    """What a turn used is read after its end: the transcript comes to be this one."""
    with suppress(AssertionError):
        eventually(lambda: transcript(page) == expected, "the transcripts are alike")
    assert transcript(page) == expected


def conversation_of(page: Page) -> str:
    return page.url.rpartition("/c/")[2]


@pytest.fixture(scope="module")
def steady(
    shape: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ServerProcess]:
    """One server for the tests of a module that let it live."""
    if shape == NATS:
        yield request.getfixturevalue("trio")
    else:
        yield from served(new_server(tmp_path_factory.mktemp("page"), shape))


@pytest.fixture
def mortal(shape: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server of one test, which may kill it."""
    if shape == NATS:
        yield from request.getfixturevalue("trio").lent()
    else:
        yield from served(new_server(tmp_path, shape))


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApartProcess]:
    """Agent, gateway and NATS for the tests of a module, which may kill them: `start` starts what does not run."""
    yield from served(apart(tmp_path_factory.mktemp("trio")))


def armed(server: ServerProcess, failpoints: str) -> None:
    """Starts it again (on NATS: its agents), to pause at a place of its own; the next start is without."""
    server.kill()
    server.start(PERDURE_FAILPOINTS=failpoints)


def served(server: Served) -> Iterator[Served]:
    try:
        yield server.start()
    finally:
        server.close()


def new_server(folder: Path, shape: str, *, agents: Sequence[str] = ("demo",), **variables: str) -> ServerProcess:
    if shape == NATS:
        return apart(folder, agents=agents, **variables)
    return ServerProcess(folder, **{**_VARIABLES, "PERDURE_PORT": str(free_port()), **variables})


def apart(folder: Path, *, agents: Sequence[str] = ("demo",), **variables: str) -> ApartProcess:
    return ApartProcess(folder, agents=agents, **{**_VARIABLES, "PERDURE_PORT": str(free_port()), **variables})


@pytest.fixture
def person(browser: Browser, steady: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Person]:
    yield from signed_in(browser, steady, getattr(request, "param", {}))


@pytest.fixture
def survivor(browser: Browser, mortal: ServerProcess) -> Iterator[Person]:
    yield from signed_in(browser, mortal, {})


_kept: dict[str, Any] = {}


def signed_in(browser: Browser, server: ServerProcess, options: dict[str, Any]) -> Iterator[Person]:
    """A link works once: later browsers of the same server come with the cookie of the first."""
    state = _kept.get(str(server.folder))
    context = browser.new_context(
        **{"locale": "en-GB", "viewport": {"width": 1200, "height": 800}, "storage_state": state, **options}
    )
    who = Person(context, server)
    if state is None:
        who.sign_in()
    yield who
    _kept[str(server.folder)] = {"cookies": context.storage_state()["cookies"], "origins": []}
    context.close()
    assert who.foreign == [], "no request leaves the origin"
    assert who.faults == []
