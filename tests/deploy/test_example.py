"""examples/docker-durable does what its page says: by itself, and typed command by command with a browser in front of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from perdure.panel.pages import BUILT
from tests.acceptance.conftest import environment, eventually
from tests.acceptance.terminal import blocks
from tests.servers.process import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "docker-durable"
NAME = "docker-durable"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_SECONDS = 500
PATIENCE_MS = 120_000


@dataclass
class Example:
    """A copy of the folder for this engine: another name and port, a base that was not pulled, wheels."""

    folder: Path
    name: str
    port: int

    @property
    def agent(self) -> str:
        return f"perdure-{self.name}-agent-worker"

    def type(self, script: str, *, fine: int = 0, answers: str = "") -> str:
        """As a person would in this folder; what was printed."""
        done = subprocess.run(
            ["bash", "-ec", script.replace(NAME, self.name)],
            cwd=self.folder,
            env=self.environment,
            input=answers,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == fine, done.stdout + done.stderr
        return done.stdout + done.stderr

    def follow(self, block: str) -> str:
        """The commands of a block of the page; whatever is asked is answered with yes."""
        return "".join(self.type(line, answers="y\n") for line in block.splitlines())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """It hears Ctrl-C also where whoever started the tests ignores it."""
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "walkthrough.py", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def environment(self) -> dict[str, str]:
        return environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def left(self) -> list[str]:
        """Containers, volumes and networks of it."""
        mine = f"--filter label=perdure.project={self.name}"
        return self.type(f"docker ps -aq {mine}; docker volume ls -q {mine}; docker network ls -q {mine}").split()


@pytest.fixture
def example(base_image: str, wheelhouse: Path, tmp_path: Path) -> Iterator[Example]:
    folder = tmp_path / NAME
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".perdure", "__pycache__"))
    made = Example(folder, f"t{os.getpid()}x{free_port()}", free_port())
    project = folder / "perdure.toml"
    text = project.read_text()
    for pattern, line in {
        r"^name = .*$": f'name = "{made.name}"',
        r"^# base_image = .*$": f'base_image = "{base_image}"',
        r"^# wheelhouse = .*$": f'wheelhouse = "{wheelhouse}"',
        r"^port = 8700$": f"port = {made.port}",
        r"STEP_SECONDS = 4": "STEP_SECONDS = 2",
    }.items():
        text, count = re.subn(pattern, line, text, flags=re.MULTILINE)
        assert count == 1, pattern
    project.write_text(text)
    yield made
    made.type(f"perdure destroy --yes --purge-data {NAME}")
    images = made.type(f"docker image ls --format '{{{{.Repository}}}}:{{{{.Tag}}}}' 'perdure-{NAME}-*'").split()
    made.type(f"docker image rm {' '.join(images)}" if images else "true")


def test_the_example_shows_a_job_that_outlives_the_restart_of_its_container(example: Example) -> None:
    """The whole command line on a real engine; costs the start of three containers."""
    example.type("perdure plan --detailed-exitcode", fine=2)
    process = example.start()
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    lines = [line for line in said.splitlines() if line]
    assert [line for line in lines if line.startswith("$ ")] == [
        "$ perdure plan",
        "$ perdure apply --yes",
        "$ perdure plan --detailed-exitcode",
        f"$ docker restart {example.agent}          (in the middle of step three)",
        "$ perdure status",
        "$ perdure destroy --yes",
        f"$ perdure destroy --yes --purge-data {example.name}",
    ]
    cut = next(number for number, line in enumerate(lines) if line.startswith("$ docker restart"))
    assert lines[cut + 1].startswith("<<< reset to event ")
    assert "The turn: completed in attempt 2." in lines
    assert "Effects: one × 1, two × 1, three × 1, four × 1" in lines
    assert f"The volume {example.agent}-data is kept. To remove it: docker volume rm {example.agent}-data" in lines
    assert f"The volume {example.agent}-data is removed, with everything in it." in lines
    assert lines[-1].startswith("OK. ")
    assert example.left() == []


@pytest.mark.proof
def test_ctrl_c_takes_everything_away_again(example: Example) -> None:
    process = example.start()
    assert process.stdout is not None
    said = ""
    while "waits until it is well" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, said + rest
    assert rest.rstrip().endswith("Interrupted.")
    assert example.left() == []


def test_without_an_engine_it_says_how_to_get_one() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "walkthrough.py")],
        env=environment(DOCKER_HOST="unix:///nonexistent/docker.sock"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "https://docs.docker.com/engine/install/" in done.stderr
    assert done.stdout == ""


# -- with a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture
def page(example: Example) -> Iterator[Page]:
    """Signed out. Nothing may leave the gateway's origin, and nothing may be refused by its content policy."""
    if CHROMIUM is None:
        pytest.skip("NO BROWSER: the page behind a deployed gateway is not tested.")
    if not (BUILT / "index.html").is_file():
        pytest.skip("NO PAGE: it is not built and so not tested. Build it with: make panel")
    faults: list[str] = []
    address = f"http://127.0.0.1:{example.port}/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(locale="en-GB", viewport={"width": 1200, "height": 900})
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", lambda sent: None if sent.url.startswith((address, "blob:")) else faults.append(sent.url))
        context.on("weberror", lambda error: faults.append(str(error.error)))
        context.on("console", lambda said: faults.append(said.text) if said.type in {"error", "warning"} else None)
        yield context.new_page()
        browser.close()
    assert [fault for fault in faults if not fault.startswith("Failed to load resource")] == []


def link(said: str) -> str:
    found = re.search(r"^open +(\S+)", said, re.MULTILINE)
    assert found is not None, said
    return found[1]


@pytest.mark.proof
def test_the_page_of_the_example_is_typed_and_looked_at_step_by_step(example: Example, page: Page) -> None:
    deploy, restart, see, back, remove = (
        block for number in "1234" for block in blocks(EXAMPLE / "README.md", f"{number}. ")
    )
    page.goto(link(example.follow(deploy)))
    page.get_by_label("Message", exact=True).fill("four-step job")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    expect(page.locator("details[data-state=done]")).to_have_count(1, timeout=PATIENCE_MS)

    example.follow(restart)
    expect(page.get_by_text("resumed after a restart")).to_be_visible(timeout=PATIENCE_MS)
    photograph(page, "resumed")
    expect(page.locator("header .pill[data-status=completed]")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("details[data-state=done]")).to_have_count(4)
    expect(page.get_by_role("log")).to_contain_text("All four steps are done: one, two, three, four.")
    photograph(page, "completed")

    said = example.follow(see)
    assert [json.loads(line)["args"]["label"] for line in said.splitlines() if line.startswith('{"tool"')] == [
        *("one", "two", "three", "four")
    ]
    assert "No changes" in said

    conversation = page.url
    page.goto(link(example.follow(back)))
    page.goto(conversation)
    expect(page.get_by_role("log")).to_contain_text("All four steps are done: one, two, three, four.")
    page.goto("about:blank")
    example.follow(remove)
    eventually(lambda: example.left() == [], "nothing of it is left")
    assert example.type(f"docker image ls --quiet 'perdure-{NAME}-*'") == ""


def photograph(page: Page, what: str) -> None:
    """For whoever wants to look: PERDURE_TEST_PHOTOGRAPHS names a folder."""
    folder = os.environ.get("PERDURE_TEST_PHOTOGRAPHS")
    if folder:
        page.screenshot(path=Path(folder) / f"{what}.png")
