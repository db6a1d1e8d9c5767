"""From the table `[deploy]` to what is wanted of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.deploy.files import read_files
from perdure.deploy.model import (
    LABEL_NAME,
    LABEL_PROJECT,
    LABEL_ROLE,
    LABEL_SPEC,
    NATS_CONFIGURATION,
    Attachment,
    Container,
    Limits,
    Mount,
    Port,
    Wanted,
)
from perdure.deploy.project import Description, Known, describe, outline
from perdure.errors import ConfigurationError
from perdure.settings import load
from perdure.settings.deployment import load_deployment
from perdure.settings.shapes import for_agent, for_gateway
from tests.unit.deploy.conftest import Describe

NATS = '[deploy]\ntransport = "nats"\n'


def container(wanted: Wanted, name: str) -> Container:
    found = wanted.container(name)
    assert found is not None, [each.name for each in wanted.containers]
    return found


def problems(described: Describe, *arguments: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        described(*arguments)
    return list(caught.value.problems)


def values(description: Description, name: str) -> dict[str, str]:
    return dict(description.values.of[name])


# -- one container ----------------------------------------------------------------------------------------------------


def test_embedded_is_one_container_with_one_data_volume(described: Describe) -> None:
    description = described("")
    (server,) = description.wanted.containers
    assert server.name == "perdure-perdure-server"
    assert (server.entrypoint, server.command) == (("perdure",), ("serve",))
    assert server.mounts == (
        Mount("/data", "perdure-agent-shop-data"),
        Mount("/run/secrets", "perdure-perdure-secrets", read_only=True),
    )
    assert server.ports == (Port(8700, 8700, "127.0.0.1"),)
    given = values(description, server.name)
    assert given.pop("TOKEN_DIGEST") not in {"", "t" * 43}
    assert given == {
        "PERDURE_DATABASE": "/data/perdure.db",
        "PERDURE_PROJECT": "/app/perdure.toml",
        "PERDURE_HOST": "0.0.0.0",
        "PERDURE_PORT": "8700",
        "PERDURE_TOKEN_FILE": "/run/secrets/token",
        "PERDURE_LOG_FORMAT": "json",
    }


def test_the_port_inside_is_the_one_outside_so_that_the_host_header_fits(described: Describe) -> None:
    description = described('[deploy.gateway]\nport = 9000\nbind = "192.168.1.5"\nallowed_hosts = ["a.example"]\n')
    (server,) = description.wanted.containers
    assert server.ports == (Port(9000, 9000, "192.168.1.5"),)
    given = values(description, server.name)
    assert given["PERDURE_PORT"] == "9000"
    assert given["PERDURE_ALLOWED_HOSTS"] == "a.example,192.168.1.5"
    assert server.health is not None and "9000" in " ".join(server.health.test)


def test_names_of_another_project_say_which(described: Describe) -> None:
    wanted = described('[deploy]\nname = "webshop"').wanted
    (server,) = wanted.containers
    assert server.name == "perdure-webshop-server"
    assert server.data == Mount("/data", "perdure-webshop-agent-shop-data")
    assert {each.name for each in wanted.networks} == {"perdure-webshop-network"}


# -- on NATS ----------------------------------------------------------------------------------------------------------


def test_on_nats_each_agent_has_a_container_and_a_volume(described: Describe) -> None:
    wanted = described(NATS).wanted
    assert [each.name for each in wanted.containers] == [
        "perdure-perdure-nats",
        "perdure-perdure-agent-shop",
        "perdure-perdure-agent-helper",
        "perdure-perdure-gateway",
    ]
    for name in ("shop", "helper"):
        agent = container(wanted, f"perdure-perdure-agent-{name}")
        assert agent.command == ("agent",)
        assert agent.mounts == (Mount("/data", f"perdure-agent-{name}-data"),)
        assert agent.ports == ()
    gateway = container(wanted, "perdure-perdure-gateway")
    assert gateway.data == Mount("/data", "perdure-gateway-data")
    assert [each.name for each in wanted.containers if each.ports] == [gateway.name]


def test_each_of_nats_users_has_a_password_that_fits_its_address(described: Describe) -> None:
    description = described(NATS)
    passwords = values(description, "perdure-perdure-nats")
    assert set(passwords) == {
        "PERDURE_NATS_GATEWAY_PASSWORD",
        "PERDURE_NATS_AGENT_SHOP_PASSWORD",
        "PERDURE_NATS_AGENT_HELPER_PASSWORD",
    }
    assert len(set(passwords.values())) == 3
    for user in ("gateway", "agent-shop", "agent-helper"):
        password = passwords[f"PERDURE_NATS_{user.upper().replace('-', '_')}_PASSWORD"]
        given = values(description, f"perdure-perdure-{user}")
        assert given["PERDURE_NATS_URL"] == f"nats://{user}:{password}@nats:4222"


def test_the_configuration_of_nats_lies_in_its_image_with_users_and_without_passwords(described: Describe) -> None:
    description = described(NATS)
    nats = container(description.wanted, "perdure-perdure-nats")
    assert nats.networks == (Attachment("perdure-perdure-network", ("nats",)),)
    image = next(each for each in description.wanted.images if each.reference == nats.image)
    assert image.build is not None and image.build.target == "nats"
    ((place, text),) = image.build.texts
    assert place == NATS_CONFIGURATION
    assert "$PERDURE_NATS_AGENT_SHOP_PASSWORD" in text and 'store_dir: "/data/jetstream"' in text
    assert "sync_interval: always" in text
    assert not [value for value in values(description, nats.name).values() if value in text]


def test_without_a_token_its_passwords_are_wanted_and_not_known(described: Describe) -> None:
    description = described(NATS, token=None)
    agent = container(description.wanted, "perdure-perdure-agent-shop")
    (address,) = [each for each in agent.environment if each.name == "PERDURE_NATS_URL"]
    assert (address.secret, address.digest) == (True, "")
    assert "PERDURE_NATS_URL" not in values(description, agent.name)


def test_a_gateway_gets_the_settings_that_concern_it_and_no_file_of_the_project(described: Describe) -> None:
    description = described('namespace = "shop"\nretention_days = 30\nmax_running = 3\n' + NATS)
    given = values(description, "perdure-perdure-gateway")
    assert (given["PERDURE_NAMESPACE"], given["PERDURE_RETENTION_DAYS"]) == ("shop", "30")
    assert "PERDURE_MAX_RUNNING" not in given and "PERDURE_PROJECT" not in given
    gateway = container(description.wanted, "perdure-perdure-gateway")
    image = next(each for each in description.wanted.images if each.reference == gateway.image)
    assert image.build is not None and image.build.files == ()


def test_limits_secrets_and_variables_of_one_agent_are_its_own(described: Describe) -> None:
    table = (
        NATS
        + 'secrets = ["ALL_KEY"]\nenvironment = { REGION = "eu" }\n'
        + '[deploy.agents.shop]\nsecrets = ["BANK_KEY"]\nenvironment = { REGION = "de" }\ncpus = 0.5\nmemory = "1g"\n'
    )
    description = described(table, {"ALL_KEY": "a", "BANK_KEY": "b", "OTHER": "c"})
    shop = values(description, "perdure-perdure-agent-shop")
    helper = values(description, "perdure-perdure-agent-helper")
    assert (shop["ALL_KEY"], shop["BANK_KEY"], shop["REGION"]) == ("a", "b", "de")
    assert (helper["ALL_KEY"], helper.get("BANK_KEY"), helper["REGION"]) == ("a", None, "eu")
    assert "OTHER" not in shop
    assert "ALL_KEY" not in values(description, "perdure-perdure-gateway")
    assert container(description.wanted, "perdure-perdure-agent-shop").limits == Limits(1 << 30, 500_000_000)
    assert container(description.wanted, "perdure-perdure-agent-helper").limits == Limits()


def test_a_service_is_reached_by_its_name_and_starts_before_agents(described: Describe) -> None:
    description = described(
        NATS + '[deploy.services.cache]\nimage = "redis"\ncommand = ["redis-server"]\nhealth = ["ping"]\n'
    )
    cache = description.wanted.containers[0]
    assert (cache.name, cache.image) == ("perdure-perdure-service-cache", "redis:latest")
    assert cache.networks == (Attachment("perdure-perdure-network", ("cache",)),)
    assert cache.health is not None and cache.health.test == ("CMD", "ping")
    assert cache.capabilities_dropped == ("ALL",) and cache.user == ""


# -- what a container does with it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["embedded", "nats"])
def test_what_each_container_is_given_is_a_configuration_that_it_starts_with(
    described: Describe, tmp_path: Path, transport: str
) -> None:
    """Also where the file says what holds for a server on this machine."""
    table = f"""
        host = "0.0.0.0"
        port = 8123
        database = "here.db"
        default_agent = "helper"
        retention_days = 30
        log_format = "console"
        allowed_hosts = ["a.example"]
        [deploy]
        transport = "{transport}"
        """
    description = described(table)
    (tmp_path / "token").write_text("t" * 43)
    shapes = {"serve": lambda settings: settings, "agent": for_agent, "gateway": for_gateway}
    for each in description.wanted.containers:
        if each.command[0] not in shapes:
            continue
        given = values(description, each.name) | {"HOME": "/tmp"}
        places = {"PERDURE_PROJECT": "perdure.toml", "PERDURE_TOKEN_FILE": "token"}
        given |= {name: str(tmp_path / file) for name, file in places.items() if name in given}
        empty = tmp_path / "empty"
        empty.mkdir(exist_ok=True)
        settings = shapes[each.command[0]](load({}, given, empty))
        file = "/data/gateway.db" if each.role == "gateway" else "/data/perdure.db"
        assert str(settings.database) == file
        assert settings.log_format == "json"
        port = each.ports[0].container_port if each.ports else 8700
        assert settings.port == port and each.health is not None and f", {port}," in each.health.test[-1]
        assert settings.host == ("0.0.0.0" if each.ports else "127.0.0.1")
        assert settings.default_agent == (each.name.rpartition("-")[2] if each.role == "agent" else "helper")
        if each.ports:
            assert settings.allowed_hosts == ("a.example",) and settings.token == "t" * 43


# -- what all of ours have in common ----------------------------------------------------------------------------------


def test_every_container_is_hardened_found_again_and_given_time_to_drain(described: Describe) -> None:
    for each in described("drain_seconds = 40\n" + NATS).wanted.containers:
        assert each.user == "10001:10001" and each.read_only and each.init
        assert each.capabilities_dropped == ("ALL",) and each.capabilities_added == ()
        assert each.security == ("no-new-privileges:true",)
        assert (each.restart, each.stop_seconds) == ("unless-stopped", 50)
        assert each.tmpfs[0].target == "/tmp"
        assert each.health is not None
        assert each.labels[LABEL_PROJECT] == "perdure" and each.labels[LABEL_ROLE] == each.role
        assert {LABEL_NAME, LABEL_SPEC} <= each.labels.keys()
        assert not each.privileged and not each.host_modes


def test_the_health_check_hears_neither_a_proxy_nor_modules_of_the_project(described: Describe) -> None:
    (server,) = described("").wanted.containers
    assert server.health is not None
    assert server.health.test[:4] == ("CMD", "python", "-I", "-c")
    compile(server.health.test[4], "health", "exec")


def test_the_digest_of_a_container_follows_what_it_has_for_its_life_and_no_secret(described: Describe) -> None:
    def spec(table: str, key: str = "a") -> str:
        (server,) = described(f'[deploy]\nsecrets = ["KEY"]\n{table}', {"KEY": key}).wanted.containers
        return server.labels[LABEL_SPEC]

    assert spec("") == spec("", key="b")
    assert spec("") == spec('[deploy.gateway]\nmemory = "1g"'), "a limit is changed in place"
    assert spec("") != spec("[deploy.gateway]\nport = 9000")
    assert spec("") != spec("environment = { A = 1 }")


# -- images -----------------------------------------------------------------------------------------------------------


def test_an_image_is_named_by_what_it_is_made_from(described: Describe, tmp_path: Path) -> None:
    def image(agent: str, table: str = NATS) -> str:
        return container(described(table).wanted, f"perdure-perdure-{agent}").image

    before, gateway = image("agent-shop"), image("gateway")
    assert image("agent-shop") == before
    assert image("agent-shop", NATS + 'base_image = "other:1"\n') != before
    (tmp_path / "tools.py").write_text("tools = []")
    assert image("agent-shop") != before
    assert image("gateway") == gateway, "a gateway has nothing of the project"
    (tmp_path / "notes.csv").write_text("1,2")
    excluding = NATS + 'exclude = ["*.csv"]\n'
    with_notes = image("agent-shop", excluding)
    (tmp_path / "notes.csv").write_text("3,4")
    assert image("agent-shop", excluding) == with_notes


def test_nats_goes_on_when_perdure_is_upgraded(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(NATS)
    settings, deploy = load_deployment(None, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)

    def images(recipe: str, nats_recipe: str) -> list[str]:
        known = Known({}, read_files(tmp_path), recipe, "t" * 43, nats_recipe)
        return [each.image for each in describe(settings, deploy, known).wanted.containers]

    before, upgraded, both = images("1", "n"), images("2", "n"), images("2", "m")
    assert before[0] == upgraded[0] != both[0]
    assert not set(before[1:]) & set(upgraded[1:])


def test_a_given_image_is_taken_as_it_is(described: Describe) -> None:
    wanted = described(NATS + 'image = "shop:1"\n[deploy.agents.helper]\nimage = "helper@sha256:abc"\n').wanted
    assert container(wanted, "perdure-perdure-agent-shop").image == "shop:1"
    assert container(wanted, "perdure-perdure-agent-helper").image == "helper@sha256:abc"
    assert container(wanted, "perdure-perdure-gateway").image == "shop:1"
    assert [each.reference for each in wanted.images if each.build is None] == ["shop:1", "helper@sha256:abc"]


def test_files_of_an_agent_that_would_not_be_in_its_image_are_named(described: Describe, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.md"
    outside.write_text("x")
    (tmp_path / ".hidden.py").write_text("graph = 1")
    (tmp_path / "tools.py").write_text("tools = []")
    agents = f'[agents.a]\nsystem_prompt_file = "{outside}"\n[agents.b]\ngraph = "./.hidden.py:graph"\n[agents.c]\ntools = ["./tools.py:tools", "json:loads"]\n'
    with pytest.raises(ConfigurationError) as caught:
        described("", agents=agents)
    first, second = caught.value.problems
    assert "[agents.a] `system_prompt_file`" in first and "[agents.b] `graph`" in second
    described('[deploy]\nimage = "own:1"', agents=agents)


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_that_are_not_set_here_are_all_named_at_once(described: Describe) -> None:
    table = '[deploy]\nsecrets = ["A_KEY", "EMPTY"]\n[deploy.services.cache]\nimage = "redis:8"\nsecrets = ["B_KEY", "A_KEY"]\n'
    found = problems(described, table, {"EMPTY": ""})
    assert len(found) == 3
    assert "export A_KEY=" in found[0] and "EMPTY" in found[1] and "B_KEY" in found[2]


def test_who_only_looks_needs_no_secret_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(
        NATS + 'secrets = ["A_KEY"]\n[agents.shop]\nsystem_prompt_file = "none.md"\n'
    )
    settings, deploy = load_deployment(None, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)
    assert [each.name for each in outline(settings, deploy).containers] == [
        "perdure-perdure-nats",
        "perdure-perdure-agent-shop",
        "perdure-perdure-gateway",
    ]


SHARED = {
    "one table": '[deploy.volumes.all]\nat = { shop = "/data", helper = "/data" }\n',
    "one volume in two tables": """
        [deploy.volumes.a]
        at = { shop = "/data" }
        volume = "v1"
        [deploy.volumes.b]
        at = { helper = "/data" }
        volume = "v1"
        """,
    "one folder, spelled twice": """
        [deploy.volumes.a]
        at = { shop = "/data" }
        folder = "/srv/x"
        [deploy.volumes.b]
        at = { helper = "/data" }
        folder = "/srv/./x"
        """,
    "the other's own volume": '[deploy.volumes.a]\nat = { shop = "/data" }\nvolume = "perdure-agent-helper-data"\n',
}


@pytest.mark.parametrize("volumes", SHARED)
def test_two_containers_cannot_write_one_database(described: Describe, volumes: str) -> None:
    (found,) = problems(described, NATS + SHARED[volumes])
    assert "perdure-perdure-agent-shop and perdure-perdure-agent-helper would both have " in found
    assert "a database has one writer" in found


def test_neither_the_gateway_nor_nats_nor_a_service_shares_a_database(described: Describe) -> None:
    table = """
        [deploy.services.cache]
        image = "redis:8"
        [deploy.volumes.all]
        at = { shop = "/data", gateway = "/data", nats = "/data", cache = "/data" }
        """
    assert len(problems(described, NATS + table)) == 6


def test_services_may_share_and_who_has_it_elsewhere_may_read_it(described: Describe) -> None:
    services = '[deploy.services.a]\nimage = "a"\n[deploy.services.b]\nimage = "b"\n'
    described(services + '[deploy.volumes.all]\nat = { a = "/data", b = "/data" }\n')
    described(services + '[deploy.volumes.all]\nat = { shop = "/data", a = "/shop" }\n')
    described('[deploy.volumes.all]\nat = { shop = "/data", helper = "/data", gateway = "/data" }\n')
