from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.deploy.destroying import destroy
from perdure.deploy.model import LABEL_PROJECT, LABEL_ROLE, Role, Volume
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


async def test_data_that_lies_in_a_container_itself_is_not_lost_without_a_word(described: Describe) -> None:
    real = realized(described("[deploy]\n"))
    (server,) = real.containers
    bare = replace(server, mounts=tuple(each for each in server.mounts if each.target != "/data"))
    real = replace(real, containers=(bare,))
    engine = MortalEngine(real)

    with pytest.raises(BadRequest, match=r"perdure-perdure-server.*would be lost"):
        await destroy(engine, real, tell=silent)
    assert engine.verbs == []

    assert (await destroy(engine, real, purge="perdure", tell=silent)).containers == (server.name,)


async def test_the_mark_of_an_interrupted_copy_is_no_data(described: Describe) -> None:
    real = realized(described("[deploy]\n"))
    mark = Volume("x.carrying", {LABEL_PROJECT: "perdure", LABEL_ROLE: str(Role.CARRYING)})
    engine = MortalEngine(replace(real, volumes=(*real.volumes, mark)))
    gone = await destroy(engine, await engine.read(real), tell=silent)
    assert mark.name not in {*engine.volumes, *gone.kept, *gone.purged}


async def test_data_that_a_container_of_others_has_is_not_purged_and_nothing_else_goes(described: Describe) -> None:
    real = realized(described("[deploy]\n"))
    (server,) = real.containers
    data = tuple(each for each in server.mounts if each.target == "/data")
    others = replace(server, name="backup", labels={}, mounts=data)
    engine = MortalEngine(replace(real, containers=(server, others)))

    with pytest.raises(BadRequest, match=r"backup: not of the project.*perdure-agent-shop-data.*Nothing was removed"):
        await destroy(engine, real, purge="perdure", tell=silent)
    assert engine.verbs == []

    gone = await destroy(engine, real, tell=silent)
    assert gone.kept == ("perdure-agent-shop-data",)
