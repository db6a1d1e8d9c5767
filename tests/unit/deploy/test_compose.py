from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from perdure.config import Settings
from perdure.transport.nats.server_config import server_config

ROOT = Path(__file__).parents[3]
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]


def test_without_a_profile_it_is_one_container_and_one_volume() -> None:
    plain = {name: service for name, service in SERVICES.items() if "profiles" not in service}

    assert list(plain) == ["perdure"]
    assert plain["perdure"]["volumes"] == ["data:/data"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_contained(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert any(volume.endswith(":/data") for volume in service["volumes"])


@pytest.mark.parametrize("name", ["perdure", "agent", "gateway"])
def test_a_container_may_take_longer_to_stop_than_its_turns_to_drain(name: str) -> None:
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > Settings().drain_seconds


@pytest.mark.parametrize("name", ["perdure", "gateway"])
def test_the_port_that_browsers_name_is_the_one_that_is_listened_on(name: str) -> None:
    port = SERVICES[name]["environment"]["PERDURE_PORT"]

    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_no_password_has_a_default() -> None:
    given = [
        value
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if "TOKEN" in name or "PASSWORD" in name
    ]

    assert len(given) == 4
    assert all(":?" in value for value in given)


def test_the_configuration_of_nats_is_what_the_command_prints() -> None:
    agent = SERVICES["agent"]["environment"]["PERDURE_AGENT_NAME"]
    defaults = Settings()

    expected = server_config(defaults.nats_prefix, defaults.namespace, [agent], store_folder="/data")

    assert (ROOT / "compose.nats.conf").read_text().rstrip() == expected.rstrip()
