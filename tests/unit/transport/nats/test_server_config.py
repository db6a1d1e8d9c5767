"""The configuration is taken by a real nats-server as it is, and grants each role no more than it says."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError
from perdure.transport.nats.server_config import server_config

NATS_SERVER = Path(sysconfig.get_path("scripts")) / "nats-server"


@pytest.mark.parametrize("agents", [(), ("shop", "helper-2")])
def test_nats_server_takes_the_configuration(tmp_path: Path, agents: tuple[str, ...]) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(server_config("perdure", "default", agents, store_folder=str(tmp_path / 'a "quoted" \\ folder')))
    variables = {f"PERDURE_NATS_{name}_PASSWORD": "x" for name in ("GATEWAY", "AGENT_SHOP", "AGENT_HELPER_2")}
    checked = subprocess.run(
        [NATS_SERVER, "-t", "-c", file], capture_output=True, text=True, env=variables, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_what_is_acknowledged_is_synced_and_everything_is_bounded() -> None:
    text = server_config("perdure", "default", (), store_folder="/data")
    assert "sync_interval: always" in text
    assert "max_file_store" in text
    assert 'host: "127.0.0.1"' in text


def test_nobody_may_delete_the_stream_and_an_agent_speaks_for_itself_alone() -> None:
    text = server_config("p", "ns", ("shop",), store_folder="/data")
    assert 'DELETE.p-turns"' not in text
    assert "PURGE" not in text
    agent = text[text.index("agent-shop") :]
    assert '"p.turns.ns.shop.*"' in agent
    assert '"p.turns.ns.>"' not in agent
    assert '"p.agents.ns.shop agents"' in agent


def test_a_name_that_is_no_word_gets_no_user() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a word"):
        server_config("p", "ns", ("a.b",), store_folder="/data")
