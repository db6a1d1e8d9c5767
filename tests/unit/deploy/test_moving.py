"""What a plan says of conversations when the project moves between the transports."""

from __future__ import annotations

from perdure.deploy.planner import plan
from tests.unit.deploy.conftest import Describe, realized

NATS = '[deploy]\ntransport = "nats"\n'
ONE = '[agents.shop]\nmodel = "demo"\n'


def warnings(before: str, after: str, described: Describe, **agents: str) -> tuple[str, ...]:
    return plan(described(after, **agents).wanted, realized(described(before, **agents))).warnings


def test_on_the_way_to_nats_it_says_whose_conversations_stay_behind(described: Describe) -> None:
    (told,) = warnings("", NATS, described)
    assert "lie in perdure-agent-shop-data, which shop goes on with" in told
    assert "Those of helper stay in it but are in no list any more, and helper begins without conversations" in told


def test_on_the_way_back_it_says_what_is_hidden_and_that_it_must_stay(described: Describe) -> None:
    (told,) = warnings(NATS, "", described)
    assert "What was said to helper on NATS lies in perdure-agent-helper-data" in told
    assert "whoever removes perdure-agent-helper-data loses those conversations" in told


def test_a_volume_that_no_agent_goes_on_with_is_named(described: Describe) -> None:
    """The default agent's own in one place, the gateway's in the other."""
    volume = '[deploy.volumes.all]\nat = { gateway = "/data" }\n'
    (told,) = warnings(volume, NATS + volume, described)
    assert "lie in perdure-volume-all, which no agent goes on with" in told


def test_nothing_is_said_where_nothing_is_out_of_sight(described: Describe) -> None:
    assert warnings("", NATS, described, agents=ONE) == ()
    assert warnings(NATS, "", described, agents=ONE) == ()
    assert warnings(NATS, NATS, described) == warnings("", "", described) == ()
