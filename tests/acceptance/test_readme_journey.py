"""What the pages tell a newcomer to type is typed, and does what they say: gate a tool, decide, survive the worst moment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ServerProcess, eventually
from tests.acceptance.terminal import Reader, blocks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def server_of(reader: Reader) -> ServerProcess:
    assert reader.server is not None
    return reader.server


def refunds(reader: Reader) -> list[str]:
    file = reader.folder / "refunds.txt"
    return file.read_text().splitlines() if file.exists() else []


def waiting(reader: Reader) -> list[dict[str, Any]]:
    return list(server_of(reader).get("/api/approvals").json()["items"])


def until_completed(reader: Reader, turns: int) -> list[dict[str, Any]]:
    """The messages of the newest conversation, once so many turns are completed."""
    server = server_of(reader)
    eventually(
        lambda: len(server.get("/api/turns?status=completed").json()["items"]) == turns, f"{turns} turns completed"
    )
    newest = server.get("/api/conversations").json()["items"][0]["id"]
    return list(server.get(f"/api/conversations/{newest}").json()["messages"])


def test_the_readme_gates_a_tool_and_survives_a_death_between_effect_and_record(reader: Reader) -> None:
    gate, decide, deadly, die, settle = blocks(ROOT / "README.md", "Gate a tool")
    reader.follow(gate)
    said = reader.follow(decide)
    assert "refund" in said and "12.5" in said
    assert until_completed(reader, 1)[-1]["content"] == 'refund answered: "12.5 paid back for order 7."'
    assert refunds(reader) == ["order 7: 12.5"]

    reader.follow(deadly)
    reader.follow(die)
    reader.until_the_server_died()
    assert refunds(reader) == ["order 7: 12.5", "order 9: 5.0"]

    server_of(reader).start()
    (card,) = eventually(lambda: waiting(reader), "the uncertain call is shown")
    assert (card["kind"], card["tool"], card["effect_class"]) == ("uncertain", "refund", "once")
    doctor = reader.follow("perdure doctor")
    assert "waiting for a person: 1, " in doctor and "1 about a call whose outcome is not known" in doctor
    assert "uncertain" in reader.follow(settle)
    messages = until_completed(reader, 2)
    assert messages[-2]["content"] == "5 paid back" and messages[-2]["status"] == "success"
    assert refunds(reader) == ["order 7: 12.5", "order 9: 5.0"]


def test_the_page_on_effects_is_followed_from_its_first_command_to_its_last(reader: Reader) -> None:
    gate, approve, deny = blocks(ROOT / "docs" / "effects.md", "Gate a tool")
    reader.follow(gate)
    assert "12.5" in reader.follow(approve)
    until_completed(reader, 1)
    assert refunds(reader) == ["order 7: 12.5"]
    reader.follow(deny)
    messages = until_completed(reader, 2)
    assert messages[-2]["status"] == "denied" and "over the limit" in messages[-2]["content"]
    assert refunds(reader) == ["order 7: 12.5"]

    deadly, die, settle = blocks(ROOT / "docs" / "effects.md", "Kill the server")
    reader.follow(deadly)
    approve, serve = die.rsplit("\n", 2)[0], "perdure serve"
    assert die.splitlines()[-1].startswith(serve)
    reader.follow(approve)
    reader.until_the_server_died()
    reader.follow(serve)
    eventually(lambda: [card["kind"] for card in waiting(reader)] == ["uncertain"], "the uncertain call is shown")
    assert "uncertain" in reader.follow(settle)
    assert until_completed(reader, 3)[-2]["content"] == "5 paid back"
    assert refunds(reader) == ["order 7: 12.5", "order 9: 5.0"]


def test_the_example_is_followed_as_its_page_says(reader: Reader) -> None:
    reader.folder = reader.folder / "effects"
    shutil.copytree(ROOT / "examples" / "effects", reader.folder)
    serve, decide, deadly, die, settle = blocks(reader.folder / "README.md", "# Tools of each class")
    reader.follow(serve)
    said = reader.follow(decide)
    assert 'stock answered: "There are 3 of lamps."' in said
    until_completed(reader, 2)
    reader.follow(deadly)
    reader.follow(die)
    reader.until_the_server_died()
    server_of(reader).start()
    eventually(lambda: waiting(reader), "the uncertain call is shown")
    said = reader.follow(settle)
    assert "uncertain" in said and "Paid back: 9.0 for order 8" in said
    assert until_completed(reader, 3)[-2]["content"] == "Paid back: 9 for order 8"
    world = (reader.folder / "shop.jsonl").read_text().splitlines()
    assert [json.loads(line)["what"] for line in world] == ["Paid back: 5.0 for order 7", "Paid back: 9.0 for order 8"]
