"""The table `[deploy]`: what it may say, every refusal, and that it is nobody else's business."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from perdure.config import (
    AgentDeploySettings,
    DeploySettings,
    GatewayDeploySettings,
    LimitSettings,
    ServiceSettings,
    Settings,
    VolumeSettings,
)
from perdure.errors import ConfigurationError
from perdure.settings import deployment, load
from perdure.settings.deployment import load_deployment

Load = Callable[..., tuple[Settings, DeploySettings]]

AGENTS = '\n[agents.shop]\nmodel = "demo"\n[agents.helper]\nmodel = "demo"\n'

EVERYTHING = """
drain_seconds = 5
namespace = "shop"
retention_days = 30

[deploy]
name = "webshop"
transport = "nats"
platform = "docker"
base_image = "debian-python:12"
wheelhouse = "wheels"
image = "registry.example:5000/shop:1"
exclude = ["notebooks", "*.csv"]
secrets = ["OPENAI_API_KEY"]
environment = { REGION = "eu", PERDURE_LOG_LEVEL = "debug", WORKERS = 3 }

[deploy.gateway]
port = 9000
bind = "192.168.1.5"
token_file = "gateway.txt"
allowed_hosts = ["agents.example.com"]
memory = "512m"
cpus = 0.5
pids = 100

[deploy.agents.shop]
image = "shop:2"
secrets = ["BANK_KEY"]
environment = { CURRENCY = "EUR" }
memory = "1.5g"

[deploy.services.cache]
image = "redis:8"
command = ["redis-server", "--save", "a,b"]
secrets = ["REDIS_PASSWORD"]
environment = { TZ = "UTC" }
user = "1000:1000"
capabilities = ["CAP_CHOWN", "SETUID"]
read_only = true
health = ["redis-cli", "ping"]
memory = "64m"

[deploy.volumes.files]
at = { shop = "/files", cache = "/data" }

[deploy.volumes.shared]
at = { helper = "/shared" }
folder = "/srv/shared"
read_only = true

[deploy.volumes.ledger]
at = { shop = "/data" }
volume = "old-ledger"
"""


@pytest.fixture
def load_here(tmp_path: Path) -> Load:
    def loading(text: str, environ: Mapping[str, str] | None = None) -> tuple[Settings, DeploySettings]:
        (tmp_path / "gateway.txt").write_text("t" * 40)
        (tmp_path / "wheels").mkdir(exist_ok=True)
        (tmp_path / "wheels" / "typer-1-py3-none-any.whl").write_bytes(b"")
        (tmp_path / "perdure.toml").write_text(text)
        return load_deployment(None, {"XDG_DATA_HOME": str(tmp_path / "data"), **(environ or {})}, tmp_path)

    return loading


def problems(loading: Load, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loading(text)
    return list(caught.value.problems)


def test_without_a_table_the_defaults_hold(load_here: Load) -> None:
    settings, deploy = load_here(AGENTS)
    assert deploy == DeploySettings()
    assert (deploy.name, deploy.transport, deploy.gateway.bind) == ("perdure", "embedded", "127.0.0.1")
    assert [agent.name for agent in settings.agents] == ["shop", "helper"]


def test_everything_that_can_be_said_is_read(load_here: Load, tmp_path: Path) -> None:
    _, deploy = load_here(EVERYTHING + AGENTS)
    assert deploy == DeploySettings(
        name="webshop",
        transport="nats",
        platform="docker",
        base_image="debian-python:12",
        wheelhouse=tmp_path / "wheels",
        image="registry.example:5000/shop:1",
        exclude=("notebooks", "*.csv"),
        secrets=("OPENAI_API_KEY",),
        environment={"REGION": "eu", "PERDURE_LOG_LEVEL": "debug", "WORKERS": "3"},
        gateway=GatewayDeploySettings(
            port=9000,
            bind="192.168.1.5",
            token_file=tmp_path / "gateway.txt",
            allowed_hosts=("agents.example.com",),
            limits=LimitSettings(memory=512 << 20, cpus=0.5, pids=100),
        ),
        agents={
            "shop": AgentDeploySettings(
                image="shop:2",
                secrets=("BANK_KEY",),
                environment={"CURRENCY": "EUR"},
                limits=LimitSettings(memory=3 << 29),
            )
        },
        services={
            "cache": ServiceSettings(
                image="redis:8",
                command=("redis-server", "--save", "a,b"),
                secrets=("REDIS_PASSWORD",),
                environment={"TZ": "UTC"},
                user="1000:1000",
                capabilities=("CHOWN", "SETUID"),
                read_only=True,
                health=("redis-cli", "ping"),
                limits=LimitSettings(memory=64 << 20),
            )
        },
        volumes={
            "files": VolumeSettings(at={"shop": "/files", "cache": "/data"}),
            "shared": VolumeSettings(at={"helper": "/shared"}, folder="/srv/shared", read_only=True),
            "ledger": VolumeSettings(at={"shop": "/data"}, volume="old-ledger"),
        },
        of_gateway={"PERDURE_NAMESPACE": "shop", "PERDURE_RETENTION_DAYS": "30"},
    )


def test_every_field_of_the_records_can_be_set() -> None:
    made = {"gateway", "agents", "services", "volumes", "of_gateway"}
    assert _names(DeploySettings) - made == set(deployment._DEPLOY)
    assert _names(GatewayDeploySettings) - {"limits"} == set(deployment._GATEWAY)
    assert _names(AgentDeploySettings) - {"limits"} == set(deployment._AGENT)
    assert _names(ServiceSettings) - {"limits"} == set(deployment._SERVICE)
    assert _names(VolumeSettings) == set(deployment._VOLUMES)
    assert _names(LimitSettings) == set(deployment._LIMITS)


def _names(record: type[Any]) -> set[str]:
    return {each.name for each in fields(record)}


def test_a_server_ignores_the_table_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("[deploy]\nnonsense = 1\n")
    settings = load({}, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)
    assert settings.notices == ()


def test_a_mistyped_name_of_the_table_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("[deplyo]\nname = 'x'\n")
    with pytest.raises(ConfigurationError, match="Did you mean deploy"):
        load({}, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)


def test_what_the_person_has_in_the_environment_is_not_what_containers_get(load_here: Load) -> None:
    environ = {"PERDURE_MODEL": "openai:gpt-5", "PERDURE_DRAIN_SECONDS": "1", "PERDURE_TOKEN": "t" * 40}
    settings, _ = load_here("drain_seconds = 7\n", environ)
    assert settings.drain_seconds == 7
    assert settings.agents[0].model == "demo"
    assert settings.token is None


def test_a_host_of_the_file_that_others_reach_needs_no_token_here(load_here: Load) -> None:
    """Containers listen where the deployment says, with its token."""
    load_here('host = "0.0.0.0"\n')


def test_all_problems_of_settings_and_table_are_told_at_once(load_here: Load) -> None:
    found = problems(
        load_here,
        """
        port = "many"
        [deploy]
        transprot = "nats"
        platform = "podman"
        [deploy.gatway]
        port = 1
        [deploy.gateway]
        prt = 1
        bind = "everywhere"
        [deploy.services.cache]
        imge = "redis"
        """,
    )
    text = "\n".join(found)
    assert "`port` must be a whole number" in text
    assert "unknown key `transprot`. Did you mean transport?" in text
    assert "`platform` must be one of docker, not 'podman'" in text
    assert "unknown key `gatway`. Did you mean gateway?" in text
    assert "[deploy.gateway]: unknown key `prt`. Did you mean port?" in text
    assert "`bind` must be an IP address" in text
    assert "[deploy.services.cache]: unknown key `imge`. Did you mean image?" in text
    assert "[deploy.services.cache] needs an `image`" in text
    assert len(found) == 8


REFUSED = {
    '[deploy]\nname = "Shop"': "`name` must be 1 to 32 small letters",
    '[deploy]\nname = "agent"': "`name` must not be one of",
    '[deploy]\nsecrets = ["sk-proj-abc123"]': "needs names of variables, never their values",
    '[deploy]\nsecrets = ["PERDURE_TOKEN"]': "must not name PERDURE_TOKEN: the deployment sets it",
    "[deploy]\nenvironment = { PERDURE_PROT = 1 }": "names PERDURE_PROT, which is no setting (did you mean PERDURE_PORT?)",
    "[deploy]\nenvironment = { A = true }": "needs a text or a number for A",
    '[deploy]\nsecrets = ["A"]\nenvironment = { A = 1 }': "A in `secrets` and in `environment`: keep one of them",
    "[deploy]\nimage = 'Shop Image'": "`image` must be the name of an image",
    '[deploy]\nwheelhouse = "none"': "/none, which is not a folder",
    '[deploy]\nwheelhouse = "."': "has no wheels (*.whl): docs/deploy.md says how to fill it",
    "[deploy]\ngateway = 1": "[deploy.gateway] must be a table",
    "deploy = 1": "[deploy] must be a table",
    "[deploy.gateway]\nport = 0": "`port` must be a whole number from 1",
    '[deploy.gateway]\nbind = "0.0.0.0"': "Say by which names and addresses it is reached, such as allowed_hosts =",
    '[deploy.gateway]\nbind = "::"': "only the names of the loopback are served",
    '[deploy.gateway]\ntoken_file = "none.txt"': "is not a file",
    '[deploy.gateway]\nmemory = "1k"': "must be a size of 6m or more",
    '[deploy.gateway]\nmemory = "99999999999999t"': "must be a size of 1024t or less",
    f'[deploy.gateway]\nmemory = "{"9" * 400}t"': "must be a size of 1024t or less",
    "[deploy.gateway]\ncpus = 1e-12": "`cpus` must be a number from 0.01 to 1024, not 1e-12",
    "[deploy.gateway]\ncpus = 1e12": "`cpus` must be a number from 0.01 to 1024",
    f"[deploy.gateway]\ncpus = 1{'0' * 400}": "`cpus` must be a number from 0.01 to 1024",
    "[deploy.gateway]\ncpus = nan": "`cpus` must be a number from 0.01 to 1024",
    "[deploy.gateway]\npids = 15": "`pids` must be a whole number from 16 to 1000000",
    "[deploy.gateway]\npids = 99999999999999999999": "`pids` must be a whole number from 16 to 1000000",
    "[deploy.gateway]\nport = 65536": "`port` must be a whole number from 1 to 65535",
    "[deploy.gateway]\nmemory = 512": 'such as "512m"',
    '[deploy]\ntransport = "nats"\n[deploy.agents.shpo]\ncpus = 1': "the agents of the project are: shop, helper. Did you mean shop?",
    "[deploy.agents.shop]\ncpus = 1": "put limits into [deploy.gateway]",
    '[deploy.services.shop]\nimage = "redis:8"': "an agent is named so too",
    '[deploy.services.nats]\nimage = "redis:8"': "cannot be named so",
    '[deploy.services.a]\nimage = "redis:8"\ncapabilities = ["ALL"]': "needs names of capabilities",
    "[deploy.volumes.a]\nread_only = true": "needs `at`",
    '[deploy.volumes.a]\nat = { shop = "data" }': "needs an absolute path in the container for 'shop'",
    '[deploy.volumes.a]\nat = { shop = "/../data" }': "needs an absolute path in the container for 'shop'",
    '[deploy.volumes.a]\nat = { shpo = "/x" }': "there is no 'shpo'; there are: shop, helper, gateway. Did you mean shop?",
    '[deploy.volumes.a]\nat = { shop = "/data" }\nread_only = true': "must be writable",
    '[deploy.volumes.a]\nat = { shop = "/app/x" }': "would cover what the image or the deployment puts there",
    '[deploy.volumes.a]\nat = { shop = "/x" }\nvolume = "v1"\nfolder = "/v"': "keep one of them",
    '[deploy.volumes.a]\nat = { shop = "/x" }\n[deploy.volumes.b]\nat = { helper = "/x" }': "/x of helper is taken by [deploy.volumes.a]",
}


@pytest.mark.parametrize(
    "place",
    ["/app", "/app/x", "/run", "/run/secrets", "/run/secrets/x", "/tmp", "/opt", "/opt/perdure/bin", "/etc/nats"],
)
def test_what_a_container_needs_is_not_covered(load_here: Load, place: str) -> None:
    (found,) = problems(load_here, f'[deploy.volumes.a]\nat = {{ shop = "{place}" }}\n{AGENTS}')
    assert f"{place} of shop would cover what the image or the deployment puts there (at /" in found


@pytest.mark.parametrize("place", ["/appdata", "/run/secrets2", "/tmpfiles", "/opt/models", "/data/files"])
def test_a_path_that_only_begins_like_one_of_them_is_taken(load_here: Load, place: str) -> None:
    _, deploy = load_here(f'[deploy.volumes.a]\nat = {{ shop = "{place}" }}\n{AGENTS}')
    assert deploy.volumes["a"].at == {"shop": place}


@pytest.mark.parametrize("table", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(load_here: Load, table: str) -> None:
    (found,) = problems(load_here, f"{table}\n{AGENTS}")
    assert REFUSED[table] in found
    assert "abc123" not in found


@pytest.mark.parametrize(
    "text",
    [
        '[deploy.gateway]\nbind = "0.0.0.0"\nallowed_hosts = ["shop.example"]',
        'allowed_hosts = ["shop.example"]\n[deploy.gateway]\nbind = "::"',
        '[deploy.gateway]\nbind = "192.0.2.10"',
    ],
)
def test_a_port_may_be_at_an_address_that_is_served(load_here: Load, text: str) -> None:
    _, deploy = load_here(f"{text}\n{AGENTS}")
    assert deploy.gateway.bind in text


@pytest.mark.parametrize("name", ["nats", "gateway"])
def test_an_agent_cannot_have_the_name_of_another_container(load_here: Load, name: str) -> None:
    (found,) = problems(load_here, f"[agents.{name}]\n")
    assert "has a container of that name already" in found


@pytest.mark.parametrize("names", [("shop", "Shop"), ("a-b", "a_b")])
def test_agents_whose_images_or_passwords_would_have_one_name_are_refused(
    load_here: Load, names: tuple[str, str]
) -> None:
    (found,) = problems(load_here, "".join(f"[agents.{name}]\n" for name in names))
    assert "must differ by more than" in found


def test_a_token_in_the_file_would_be_in_an_image(load_here: Load) -> None:
    (found,) = problems(load_here, f'token = "{"s" * 40}"\n')
    assert "`token` cannot be deployed" in found
    assert "s" * 40 not in found


def test_a_token_file_belongs_to_the_gateways_table(load_here: Load) -> None:
    (found,) = problems(load_here, 'token_file = "gateway.txt"\n')
    assert "name it as `token_file` in [deploy.gateway]" in found


def test_every_key_is_explained() -> None:
    text = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text().split("## Deployments")[1]
    schemas = (deployment._DEPLOY, deployment._GATEWAY, deployment._AGENT, deployment._SERVICE, deployment._VOLUMES)
    keys = {key for schema in (*schemas, deployment._LIMITS) for key in schema}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_credentials_for_another_nats_are_refused(load_here: Load) -> None:
    (found,) = problems(load_here, 'nats_nkey_file = "gateway.txt"\n')
    assert "has its own NATS" in found


def test_a_deployment_needs_a_project_file_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no perdure\.toml here"):
        load_deployment(None, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)
    (tmp_path / "langgraph.json").write_text('{"graphs": {"a": "./a.py:graph"}}')
    with pytest.raises(ConfigurationError, match="name each graph there"):
        load_deployment(None, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path)


def test_the_file_is_the_one_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[deploy]\nname = "other"\n')
    for flag, environ in (("other.toml", {}), (None, {"PERDURE_PROJECT": "other.toml"})):
        _, deploy = load_deployment(flag, {"XDG_DATA_HOME": str(tmp_path), **environ}, tmp_path)
        assert deploy.name == "other"
