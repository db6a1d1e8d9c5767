"""`perdure agents`: what is refused before a server is asked."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from perdure.cli.agents import app
from perdure.errors import BadRequest


@pytest.mark.parametrize("name", ["", " ", ".", ".."])
def test_what_is_no_name_is_not_asked_to_be_forgotten(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in [each for each in os.environ if each.startswith("PERDURE_")]:
        monkeypatch.delenv(variable)
    done = CliRunner().invoke(app, ["forget", name, "--yes"])
    assert isinstance(done.exception, BadRequest)
    assert "The name of an agent is needed" in done.exception.message
