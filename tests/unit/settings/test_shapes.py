from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigurationError
from perdure.settings import load
from perdure.settings.shapes import for_agent, for_gateway
from perdure.settings.values import without_passwords

NATS = {"nats_url": "nats://127.0.0.1:4222"}


def _project(folder: Path, text: str) -> Path:
    (folder / "perdure.toml").write_text(text)
    return folder


def test_the_agent_of_no_project_takes_the_name_it_is_given(tmp_path: Path) -> None:
    settings = for_agent(load({**NATS, "agent_name": "billing"}, {}, tmp_path))
    assert [agent.name for agent in settings.agents] == [settings.default_agent] == ["billing"]


def test_an_agent_listens_on_a_free_port_unless_one_is_named(tmp_path: Path) -> None:
    assert for_agent(load(NATS, {}, tmp_path)).port == 0
    assert for_agent(load({**NATS, "port": "8800"}, {}, tmp_path)).port == 8800


def test_one_of_several_agents_is_served_by_a_process_of_its_own(tmp_path: Path) -> None:
    folder = _project(tmp_path, '[agents.one]\nmodel = "demo"\n[agents.two]\nmodel = "demo"\n')
    assert [agent.name for agent in for_agent(load({**NATS, "agent_name": "two"}, {}, folder)).agents] == ["two"]
    with pytest.raises(ConfigurationError, match=r"--agent-name NAME. The project has: one, two"):
        for_agent(load(NATS, {}, folder))
    with pytest.raises(ConfigurationError, match="Did you mean two"):
        for_agent(load({**NATS, "agent_name": "twoo"}, {}, folder))


def test_a_project_s_only_agent_keeps_its_name(tmp_path: Path) -> None:
    folder = _project(tmp_path, '[agents.helper]\nmodel = "demo"\n')
    assert for_agent(load(NATS, {}, folder)).default_agent == "helper"
    with pytest.raises(ConfigurationError, match="`agent_name` names 'other'"):
        for_agent(load({**NATS, "agent_name": "other"}, {}, folder))


def test_a_name_that_is_no_word_of_a_subject_is_refused(tmp_path: Path) -> None:
    folder = _project(tmp_path, '[agents."a.b"]\nmodel = "demo"\n')
    with pytest.raises(ConfigurationError, match="cannot be a word of a NATS subject"):
        for_agent(load(NATS, {}, folder))


@pytest.mark.parametrize("name", ["a.b", "*", ">", "a b", "", "-a", "x" * 65])
def test_words_of_subjects_are_checked_when_settings_are_read(tmp_path: Path, name: str) -> None:
    if not name:
        assert load({"namespace": name or None}, {}, tmp_path).namespace == "default"
        return
    with pytest.raises(ConfigurationError, match="`namespace` must be"):
        load({"namespace": name}, {}, tmp_path)


@pytest.mark.parametrize("address", ["http://h:1", "nats://", "h:4222", "nats://a:1,,nats://b:2"])
def test_an_address_of_nats_says_its_scheme(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError, match="`nats_url` must look like"):
        load({"nats_url": address}, {}, tmp_path)


def test_a_gateway_has_no_agents_and_a_database_of_its_own(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    settings = for_gateway(load(NATS, environment, tmp_path))
    assert settings.agents == ()
    assert settings.database is not None
    assert settings.database.name == "gateway.db"
    assert for_gateway(load({**NATS, "database": "own.db"}, environment, tmp_path)).database == tmp_path / "own.db"


def test_nothing_starts_without_nats_or_with_half_an_identity(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    flags = {"nats_key_file": "key", "nats_nkey_file": "key", "nats_credentials_file": "key"}
    with pytest.raises(ConfigurationError) as refused:
        for_gateway(load(flags, {}, tmp_path))
    assert len(refused.value.problems) == 3


def test_addresses_are_shown_without_who_and_password() -> None:
    assert without_passwords("nats://a:1,tls://user:pass@b:2") == "nats://a:1,tls://***@b:2"


def test_a_gateway_without_a_project_may_name_the_agent_that_answers_by_default(tmp_path: Path) -> None:
    """Its agents are found on NATS, not in its settings."""
    assert for_gateway(load({**NATS, "default_agent": "shop"}, {}, tmp_path)).default_agent == "shop"
    with pytest.raises(ConfigurationError, match="`default_agent` names 'shop'"):
        load({"default_agent": "shop"}, {}, tmp_path)
