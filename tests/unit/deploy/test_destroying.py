from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.deploy.destroying import destroy
from perdure.deploy.model import Volume
from perdure.errors import BadRequest
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import MortalEngine


def silent(line: str) -> None:
    return None


async def test_containers_go_in_the_reverse_order_and_data_stays(described: Describe) -> None:
    real = realized(described('[deploy]\ntransport = "nats"\n'))
    engine = MortalEngine(real)

    gone = await destroy(engine, real, tell=silent)

    assert engine.held == {}
    assert gone.containers[0] == "perdure-perdure-gateway"
    assert gone.containers[-1] == "perdure-perdure-nats"
    assert (
        set(gone.kept)
        == set(engine.volumes)
        == {
            "perdure-agent-shop-data",
            "perdure-agent-helper-data",
            "perdure-gateway-data",
            "perdure-nats-data",
        }
    )
    assert gone.purged == ()


async def test_data_is_purged_by_the_name_of_the_project_alone(described: Describe) -> None:
    real = realized(described("[deploy]\n"))
    others = Volume("somebody-elses")
    real = replace(real, volumes=(*real.volumes, others))
    engine = MortalEngine(real)

    with pytest.raises(BadRequest, match="Nothing was removed"):
        await destroy(engine, real, purge="other", tell=silent)
    assert engine.verbs == []

    gone = await destroy(engine, real, purge="perdure", tell=silent)

    assert gone.purged == ("perdure-agent-shop-data",)
    assert list(engine.volumes) == ["somebody-elses"]
    assert f"remove volume {others.name}" not in engine.verbs
