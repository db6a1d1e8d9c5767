"""The pages promise what the program does: settings, error codes, routes, failpoints, commands and links are compared."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

import perdure
from perdure import errors
from perdure.api import approvals, chat, conversations, health, people, turns
from perdure.api.schemas import WHEN_BUSY
from perdure.cli import app
from perdure.effects import EffectClass, OnUncertain
from perdure.failpoints import NATS_PLACES, PLACES
from perdure.settings.catalogue import OTHER_VARIABLES, SETTINGS
from perdure.turns import DECISIONS, DecisionKind, FailureCode, TurnStatus
from tests.settings_table import settings_table

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]


GATES = SETTINGS[[setting.name for setting in SETTINGS].index("needs_approval") :]
"""What the settings say about tools and the limits of a turn."""


def page(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_table_of_settings_is_the_catalogue() -> None:
    text = page("docs/configuration.md")
    shown = text.split("<!-- settings:begin -->")[1].split("<!-- settings:end -->")[0].strip()
    assert shown == settings_table(), "run: .venv/bin/python -m tests.settings_table"


def test_every_other_variable_is_explained() -> None:
    text = page("docs/configuration.md")
    assert {name for name in OTHER_VARIABLES if f"`{name}`" not in text} == set()


def test_every_setting_has_a_help_text_that_is_a_sentence() -> None:
    assert [setting.name for setting in SETTINGS if not re.match(r".+\.$", setting.help)] == []


def test_every_error_code_that_http_can_answer_is_explained() -> None:
    classes = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    codes = {value.code for value in classes if issubclass(value, errors.PerdureError)}
    inside = {"CONFIGURATION", "DATABASE_UNUSABLE", "LEASE_LOST"}
    text = page("docs/http.md")
    assert {code for code in codes - inside if f"`{code}`" not in text} == set()


def test_every_failure_code_of_a_turn_is_explained() -> None:
    text = page("docs/http.md")
    assert {str(code) for code in FailureCode if f"`{code}`" not in text} == set()


def test_every_failpoint_is_explained() -> None:
    shown = re.findall(r"^\| `([a-z_.]+)` \|", page("docs/durability.md"), re.MULTILINE)
    assert sorted(shown) == sorted([*PLACES, *NATS_PLACES])


def test_every_state_is_explained() -> None:
    text = page("docs/concepts.md").split("## The states of a turn")[1]
    assert {str(status) for status in TurnStatus if f"`{status}`" not in text} == set()


def test_every_route_is_explained() -> None:
    rooms = (approvals, chat, conversations, health, people, turns)
    routes = [route for room in rooms for route in room.router.routes if isinstance(route, APIRoute)]
    text = page("docs/http.md")
    named = {(method, route.path) for route in routes for method in route.methods or ()}
    assert {
        f"{method} {path}" for method, path in named if not re.search(rf"{method} {re.escape(path)}(?![\\w/])", text)
    } == set()


def test_the_page_on_effects_names_every_class_decision_policy_and_limit() -> None:
    text = page("docs/effects.md")
    words = [*EffectClass, *DecisionKind, *OnUncertain, *DECISIONS, *WHEN_BUSY, *(setting.name for setting in GATES)]
    assert {str(word) for word in words if f"`{word}`" not in text} == set()
    reasons = re.findall(r"`([a-z_]+_limit)`", page("src/perdure/turns.py"))
    assert len(reasons) == 5 and {reason for reason in reasons if f"`{reason}`" not in text} == set()


def test_the_page_on_effects_names_nothing_that_perdure_does_not_have() -> None:
    text = page("docs/effects.md")
    named = set(re.findall(r"(?:perdure\.|from perdure import )([A-Za-z_]+)", text)) - {"toml"}
    assert named - set(perdure.__all__) == set()
    assert {"call_key", "effect", "NOT_HAPPENED", "ToolNode", "DurableToolsMiddleware"} <= named


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    named = {name for path in PAGES for name in re.findall(r"`make ([a-z]+)", path.read_text())}
    assert named - targets == set()
    assert {"run", "test"} <= set(re.findall(r"^make ([a-z]+)", page("README.md"), re.MULTILINE))


def test_every_command_is_explained() -> None:
    text = page("docs/commands.md")
    shown = set(re.findall(r"`perdure ([a-z][a-z-]*)", text))
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    groups = {group.name for group in app.registered_groups}
    assert shown == commands | groups


def test_every_command_of_a_group_is_explained_and_every_one_that_a_page_uses_exists() -> None:
    text = page("docs/commands.md")
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names = {
            command.name or command.callback.__name__
            for command in group.typer_instance.registered_commands
            if command.callback
        }
        rows = "\n".join(re.findall(rf"^\| `perdure {group.name}[ `].*$", text, re.MULTILINE))
        assert names - set(re.findall(r"[a-z-]+", rows)) == set(), group.name
        used = {name for path in PAGES for name in re.findall(rf"perdure {group.name} ([a-z-]+)", path.read_text())}
        assert used - names == set(), group.name
