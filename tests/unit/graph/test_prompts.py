from __future__ import annotations

from pathlib import Path

import pytest

from perdure.graph.errors import PromptUnreadable
from perdure.graph.prompts import read_prompt


def test_the_file_is_read_at_every_call(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("\ufeffBe brief.\n", encoding="utf-8")
    assert read_prompt(path) == "Be brief."
    path.write_text("Be long.")
    assert read_prompt(path) == "Be long."


def test_no_file_and_an_empty_file_are_no_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text(" \n")
    assert read_prompt(path) is None
    assert read_prompt(None) is None


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xff"])
def test_a_file_that_cannot_be_read_is_a_failure_that_names_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prompt.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PromptUnreadable, match=r"prompt\.md") as caught:
        read_prompt(path)
    assert caught.value.failure.reason == "system_prompt_unreadable"
