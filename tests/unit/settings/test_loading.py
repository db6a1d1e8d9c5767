"""Settings: the order of sources, every refusal, and that all refusals are told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from perdure.config import AgentSettings, Settings
from perdure.errors import ConfigurationError
from perdure.settings import load
from perdure.settings.catalogue import ONLY_IN_AGENT_TABLES, SETTINGS
from perdure.settings.loading import loopback

Load = Callable[..., Settings]


@pytest.fixture
def load_here(tmp_path: Path) -> Load:
    def loading(environ: Mapping[str, str] | None = None, /, **flags: Any) -> Settings:
        return load(flags, {"XDG_DATA_HOME": str(tmp_path / "data"), **(environ or {})}, tmp_path)

    return loading


def problems(loading: Load, environ: Mapping[str, str] | None = None, /, **flags: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loading(environ, **flags)
    return list(caught.value.problems)


def test_without_any_source_the_defaults_hold_and_the_demo_agent_serves(load_here: Load, tmp_path: Path) -> None:
    settings = load_here()
    assert (settings.host, settings.port, settings.project) == ("127.0.0.1", 8700, None)
    assert [(agent.name, agent.model, agent.recursion_limit) for agent in settings.agents] == [("agent", "demo", 25)]
    assert settings.database is not None and settings.database.is_absolute()


def test_a_flag_outranks_the_environment_which_outranks_the_file(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("port = 1\nmax_attempts = 4\nlease_seconds = 60\n")
    settings = load_here({"PERDURE_PORT": "2", "PERDURE_MAX_ATTEMPTS": "5"}, port="3")
    assert (settings.port, settings.max_attempts, settings.lease_seconds) == (3, 5, 60.0)
    assert settings.origins["port"] == "--port"
    assert settings.origins["max_attempts"] == "PERDURE_MAX_ATTEMPTS"
    assert settings.origins["lease_seconds"].endswith("perdure.toml")


def test_every_field_of_the_records_can_be_set() -> None:
    made = {"agents", "import_paths", "environment", "notices", "origins"}
    server = {entry.name for entry in fields(Settings)} - made
    agent = {entry.name for entry in fields(AgentSettings)} - {"name", "base"}
    assert {setting.name for setting in SETTINGS if not setting.of_agent} == server
    assert {setting.name for setting in SETTINGS if setting.of_agent} | ONLY_IN_AGENT_TABLES.keys() == agent


def test_all_problems_are_told_at_once(load_here: Load) -> None:
    found = problems(
        load_here, {"PERDURE_PORT": "many", "PERDURE_PROT": "1", "PERDURE_REDRIVE": "maybe"}, log_level="x"
    )
    text = "\n".join(found)
    assert len(found) == 4
    assert "`port` must be a whole number from 0 to 65535, not 'many' (from PERDURE_PORT)." in found
    assert "Unknown variable PERDURE_PROT. Did you mean PERDURE_PORT?" in found
    assert "auto, manual" in text and "--log-level" in text


@pytest.mark.parametrize(
    "variable",
    [
        "PERDURE_DEMO_STEP_SECONDS",
        "PERDURE_DEMO_TOKEN_SECONDS",
        "PERDURE_DEMO_EFFECTS",
        "PERDURE_DEMO_EFFECT_PAUSE_SECONDS",
        "PERDURE_FAILPOINTS",
    ],
)
def test_variables_that_others_read_are_known(load_here: Load, variable: str) -> None:
    load_here({variable: "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "-1"),
        ("port", "65536"),
        ("port", "8700.5"),
        ("max_running", "0"),
        ("lease_seconds", "0"),
        ("lease_seconds", "nan"),
        ("drain_seconds", "inf"),
        ("heartbeat_seconds", "61"),
        ("retention_days", "-3"),
        ("log_format", "xml"),
        ("allowed_hosts", "*"),
        ("allowed_hosts", "http://example.com"),
        ("token", "two words"),
        ("token", "schlüssel"),
        ("token_file", "absent"),
        ("project", "absent.toml"),
        ("model_base_url", "localhost:11434"),
        ("tools", "no_colon"),
        ("state_types", "module:not-a-name"),
        ("context_tokens", "0"),
        ("recursion_limit", "none"),
        ("database", "a\0b"),
        ("needs_approval", "restart service"),
        ("needs_approval", "fs/write"),
        ("effects", "charge_card"),
        ("effects", "charge card=once"),
        ("effects", "charge_card=onse"),
        ("effects", "note=keyed,note=once"),
        ("on_uncertain", "askk"),
        ("approval_expires_seconds", "0"),
        ("approval_deciders", "Ada Lovelace"),
        ("poll", "=read"),
        ("max_model_calls", "0"),
        ("max_tool_calls", "1.5"),
        ("max_tokens", "many"),
        ("max_turn_seconds", "-1"),
        ("max_identical_calls", "0"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_by_name(load_here: Load, name: str, value: str) -> None:
    found = problems(load_here, {f"PERDURE_{name.upper()}": value})
    assert len(found) == 1 and found[0].startswith(f"`{name}` ") and f"PERDURE_{name.upper()}" in found[0]


def test_a_refused_token_is_not_repeated_in_the_message(load_here: Load) -> None:
    assert "canary" not in "\n".join(problems(load_here, {"PERDURE_TOKEN": "canary token"}))


def test_an_empty_variable_is_an_unset_one(load_here: Load) -> None:
    assert load_here({"PERDURE_PORT": "", "PERDURE_MODEL": " "}).port == 8700


def test_the_well_known_alias_of_the_step_limit_is_accepted_and_ours_wins(load_here: Load) -> None:
    settings = load_here({"AGENT_RECURSION_LIMIT": "7"})
    assert settings.agents[0].recursion_limit == 7
    assert settings.origins["recursion_limit"] == "AGENT_RECURSION_LIMIT"
    assert load_here({"AGENT_RECURSION_LIMIT": "7", "PERDURE_RECURSION_LIMIT": "9"}).agents[0].recursion_limit == 9


def test_a_list_is_comma_separated_text_or_several_flags(load_here: Load) -> None:
    assert load_here({"PERDURE_ALLOWED_HOSTS": "a.example, b.example:80"}).allowed_hosts == (
        "a.example",
        "b.example:80",
    )
    assert load_here(allowed_hosts=["a.example", "b.example"]).allowed_hosts == ("a.example", "b.example")


# -- combinations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com"])
def test_listening_for_other_machines_needs_an_explicit_token(load_here: Load, host: str) -> None:
    assert "PERDURE_TOKEN_FILE" in problems(load_here, host=host)[0]
    assert load_here({"PERDURE_TOKEN": "secret"}, host=host).host == host


def test_loopback_is_recognised_in_every_form() -> None:
    assert all(loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"))
    assert not any(loopback(host) for host in ("0.0.0.0", "::", "localhost.example", "10.0.0.1"))


def test_a_sweep_slower_than_half_the_lease_is_refused(load_here: Load) -> None:
    assert "lease_seconds" in problems(load_here, lease_seconds="8")[0]
    assert load_here(lease_seconds="8", sweep_seconds="4").sweep_seconds == 4


def test_more_attempts_in_a_row_than_in_all_is_refused(load_here: Load) -> None:
    assert "total_attempts" in problems(load_here, max_attempts="9", total_attempts="8")[0]


# -- the token --------------------------------------------------------------------------------------------------------


def test_the_token_file_is_read_and_a_line_end_is_not_part_of_the_token(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    assert load_here({"PERDURE_TOKEN_FILE": "secret"}).token == "s3cret"


def test_the_higher_source_of_the_token_wins_and_two_of_one_source_are_refused(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from-file")
    assert load_here({"PERDURE_TOKEN_FILE": "secret"}, token="from-flag").token == "from-flag"
    assert load_here({"PERDURE_TOKEN": "from-variable"}, token_file="secret").token == "from-file"
    assert "keep one" in problems(load_here, {"PERDURE_TOKEN": "one", "PERDURE_TOKEN_FILE": "secret"})[0]


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe"])
def test_a_token_file_that_holds_no_token_is_refused(load_here: Load, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    assert "token_file" in problems(load_here, token_file="secret", host="0.0.0.0")[0]


def test_the_token_does_not_show_in_the_record(load_here: Load) -> None:
    assert "canary" not in repr(load_here(token="canary"))


# -- perdure.toml -----------------------------------------------------------------------------------------------------

AGENTS = """
model = "openai:small"
[agents.writer]
model = "anthropic:large"
system_prompt_file = "prompt.md"
max_running = 2
[agents.counter]
graph = "./graph.py:graph"
recursion_limit = 9
"""


def test_agents_of_the_file_take_its_top_level_as_defaults_and_paths_from_its_folder(
    load_here: Load, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "perdure.toml").write_text(AGENTS)
    (folder / "prompt.md").write_text("Be brief.")
    settings = load_here(project="elsewhere/perdure.toml")
    writer, counter = settings.agents
    assert (writer.model, writer.system_prompt_file, writer.max_running) == (
        "anthropic:large",
        folder / "prompt.md",
        2,
    )
    assert (counter.model, counter.graph, counter.recursion_limit) == ("openai:small", "./graph.py:graph", 9)
    assert (counter.base, settings.default_agent, settings.import_paths) == (folder, "writer", (folder,))
    assert settings.origins["agents.counter.graph"].endswith("perdure.toml")


def test_a_variable_is_a_default_for_agents_of_the_file_and_it_is_said_when_one_has_its_own(
    load_here: Load, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text(AGENTS.replace('system_prompt_file = "prompt.md"', ""))
    settings = load_here({"PERDURE_MODEL": "ollama:tiny"})
    assert [agent.model for agent in settings.agents] == ["anthropic:large", "ollama:tiny"]
    assert any("PERDURE_MODEL is a default" in notice and "writer" in notice for notice in settings.notices)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prot = 1", "Did you mean port?"),
        ("[agent.a]", "Did you mean agents?"),
        ("[agents.a]\nmodle = 'x'", "Did you mean model?"),
        ("[agents.a]\nport = 1", "unknown key `port`"),
        ("[agents.'a b']", "a name has letters"),
        ("agents = 3", "must be tables"),
        ("[agents]\na = 3", "must be a table"),
        ("port = true", "whole number"),
        ("port = '", "not valid TOML"),
        ("default_agent = 'wirter'\n[agents.writer]", "Did you mean writer?"),
        ("[agents.a]\ngraph = 'graph.py'", "`graph` needs"),
    ],
)
def test_a_fault_of_the_file_is_told_with_its_place(load_here: Load, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "perdure.toml").write_text(content)
    found = problems(load_here)
    assert len(found) == 1 and said in found[0]


def test_a_project_file_that_is_not_text_is_told(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_bytes(b"\xff\xfe")
    assert "not valid TOML" in problems(load_here)[0]


GATED = """
needs_approval = ["restart_service", "fs__write_*"]
max_tool_calls = 50
[effects]
"*" = "once"
[agents.careful]
approval_expires_seconds = 3600
approval_deciders = ["ops"]
on_uncertain = "fail"
[agents.careful.effects]
"fs__read_*" = "read"
note = "keyed"
"fs__*" = "once"
[agents.quick]
effects = ["look=read", "*=keyed"]
needs_approval = []
poll = ["job_*"]
max_identical_calls = 5
"""


def test_what_is_said_of_an_agents_tools_comes_as_a_table_or_a_list_and_keeps_its_order(
    load_here: Load, tmp_path: Path
) -> None:
    (tmp_path / "perdure.toml").write_text(GATED)
    settings = load_here()
    careful, quick = settings.agents
    assert settings.origins["agents.careful.effects"] == str(tmp_path / "perdure.toml")
    assert careful.effects == ("fs__read_*=read", "note=keyed", "fs__*=once")
    assert quick.effects == ("look=read", "*=keyed")
    assert (careful.needs_approval, quick.needs_approval) == (("restart_service", "fs__write_*"), ())
    assert (careful.approval_expires_seconds, careful.approval_deciders, careful.on_uncertain) == (
        3600.0,
        ("ops",),
        "fail",
    )
    assert (quick.poll, quick.max_identical_calls, quick.max_tool_calls) == (("job_*",), 5, 50)
    assert load_here().notices == ()


def test_effects_and_gates_come_from_the_environment_and_flags_too(load_here: Load) -> None:
    (agent,) = load_here(
        {"PERDURE_EFFECTS": "note=keyed, *=once", "PERDURE_NEEDS_APPROVAL": "a"},
        needs_approval=["restart_service", "fs__write_*"],
        max_turn_seconds="90",
    ).agents
    assert agent.effects == ("note=keyed", "*=once")
    assert agent.needs_approval == ("restart_service", "fs__write_*")
    assert agent.max_turn_seconds == 90.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("on_uncertain = 'askk'", "did you mean ask?"),
        ("[agents.a.effects]\nnote = 'keyd'", "did you mean keyed?"),
        ("[agents.a.effects]\nnote = 3", "needs a class for 'note'"),
        ("[agents.a.effects]\n'a b' = 'once'", "not 'a b'"),
        ("[agents.a]\nneed_approval = ['x']", "Did you mean needs_approval?"),
        ("[agents.a]\nmax_toolcalls = 3", "Did you mean max_tool_calls?"),
    ],
)
def test_a_mistyped_gate_is_told_with_what_was_probably_meant(
    load_here: Load, tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "perdure.toml").write_text(content)
    found = problems(load_here)
    assert len(found) == 1 and said in found[0]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("approval_expires_seconds = 60", "approval_expires_seconds"),
        ("poll = ['look']", "poll"),
    ],
)
def test_a_setting_that_guards_nothing_is_told(load_here: Load, tmp_path: Path, content: str, name: str) -> None:
    (tmp_path / "perdure.toml").write_text(content)
    (notice,) = load_here(model="openai:small").notices
    assert f"`{name}` does nothing" in notice


# -- langgraph.json ---------------------------------------------------------------------------------------------------


def test_langgraph_json_gives_graphs_environment_and_import_paths(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# keys\nexport OPENAI_API_KEY='abc # d'\nPERDURE_PORT=9001 # note\n\nEMPTY=\n")
    (tmp_path / "langgraph.json").write_text(
        '{"graphs": {"one": "./one.py:graph", "two": {"path": "./two.py:make"}}, "env": ".env", "dependencies": ["."]}'
    )
    settings = load_here()
    assert [(agent.name, agent.graph) for agent in settings.agents] == [
        ("one", "./one.py:graph"),
        ("two", "./two.py:make"),
    ]
    assert settings.environment == {"OPENAI_API_KEY": "abc # d", "PERDURE_PORT": "9001", "EMPTY": ""}
    assert settings.port == 9001 and "env of" in settings.origins["port"]
    assert settings.import_paths == (tmp_path.resolve(),)
    assert load_here({"PERDURE_PORT": "9002"}).port == 9002


def test_unknown_keys_of_langgraph_json_are_told_not_refused(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "langgraph.json").write_text(
        '{"graphs": {"one": "./one.py:graph"}, "auth": {}, "python_version": "3.12", '
        '"dependencies": ["surely-not-installed>=1", "pytest"]}'
    )
    notices = "\n".join(load_here().notices)
    assert "`auth`" in notices and "surely-not-installed" in notices
    assert "python_version" not in notices and "'pytest'" not in notices


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ("{}", "needs `graphs`"),
        ('{"graphs": {"a": 3}}', "`graph`"),
        ('{"graphs": {"a": "./a.py:g"}, "env": "absent.env"}', "cannot be read"),
        ('{"graphs": {"a": "./a.py:g"}, "env": 3}', "`env` must be"),
        ('{"graphs": {"a": "./a.py:g"}, "dependencies": ["./absent"]}', "not a folder"),
        ('{"graphs": {"a": "./a.py:g"}, "dependencies": "."}', "list of texts"),
    ],
)
def test_a_fault_of_langgraph_json_is_told(load_here: Load, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "langgraph.json").write_text(content)
    found = problems(load_here)
    assert len(found) == 1 and said in found[0]


def test_our_file_wins_over_the_other(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "langgraph.json").write_text("{")
    (tmp_path / "perdure.toml").write_text("port = 5")
    assert load_here().port == 5
