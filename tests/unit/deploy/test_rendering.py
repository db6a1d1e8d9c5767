"""A plan for people, for programs and for a later apply."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure.deploy.model import Action, CarryData, Change, Kind, Plan, Real, Subject
from perdure.deploy.planner import plan
from perdure.deploy.rendering import PlanStale, as_json, check_fresh, from_file, lines, summary, to_file
from perdure.errors import ConfigurationError
from tests.unit.deploy.conftest import Describe, realized

PLAN = Plan(
    "shop",
    (
        Action(Kind.CREATE, Subject.VOLUME, "v", "It is not there."),
        Action(Kind.UPDATE, Subject.CONTAINER, "a", "It can.", (Change("restart", "no", "unless-stopped"),)),
        Action(
            Kind.REPLACE,
            Subject.CONTAINER,
            "b",
            "mounts./data cannot.",
            (Change("mounts./data", "none", "volume v"), Change("user", "0", "10001:10001")),
            CarryData("b", "v", volume_exists=False),
        ),
        Action(Kind.REPLACE, Subject.NETWORK, "n", "driver cannot.", detaches=("a", "b")),
        Action(Kind.REMOVE, Subject.CONTAINER, "c", "Nobody wants it."),
    ),
    real_digest="r",
    wanted_digest="w",
    kept=("old-data",),
)


def test_people_read_each_action_its_reason_and_what_differs() -> None:
    text = [line.text for line in lines(PLAN)]
    assert text[:6] == [
        "  + volume    v",
        "      It is not there.",
        "  ~ container a",
        "      It can.",
        "      restart  no → unless-stopped",
        "-/+ container b",
    ]
    assert "      mounts./data  none → volume v" in text
    assert "      user          0 → 10001:10001" in text
    assert any("/data is copied into the volume v, verified" in line for line in text)
    assert text[-2] == "Plan: 1 to make, 1 to change, 2 to replace, 1 to remove."
    assert "The volume old-data holds data, such as conversations" in text[-1]
    assert "docker volume rm" not in "".join(text), "whoever follows it loses conversations"


def test_what_must_be_known_first_stands_first() -> None:
    warned = replace(PLAN, warnings=("Look out.",))
    assert next(lines(warned)).text == "Note: Look out."
    assert as_json(warned)["warnings"] == ["Look out."]
    assert from_file(to_file(warned)) == warned


def test_a_volume_that_is_there_must_be_empty_to_take_data() -> None:
    carry = CarryData("b", "v", volume_exists=True)
    (action,) = (replace(each, carry_data=carry) for each in PLAN.actions if each.carry_data)
    assert any("which must be empty" in line.text for line in lines(replace(PLAN, actions=(action,))))


def test_the_summary_counts_only_what_there_is() -> None:
    assert summary(replace(PLAN, actions=PLAN.actions[:1])) == "1 to make"


def test_programs_get_the_same_as_json() -> None:
    content = json.loads(json.dumps(as_json(PLAN)))
    assert content["changes"] is True
    assert content["summary"] == {"create": 1, "update": 1, "remove": 1, "replace": 2}
    assert content["actions"][1] == {
        "kind": "~",
        "subject": "container",
        "name": "a",
        "reason": "It can.",
        "changes": [{"attribute": "restart", "had": "no", "wants": "unless-stopped"}],
        "carry_data": None,
        "detaches": [],
    }
    assert as_json(replace(PLAN, actions=()))["changes"] is False


def test_a_kept_plan_is_read_back_whole() -> None:
    assert from_file(to_file(PLAN)) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "1",
        '{"perdure_plan": 1}',
        to_file(PLAN).replace('"-/+"', '"!"'),
        to_file(PLAN).replace('"had"', '"was"'),
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a plan"):
        from_file(text)


def test_a_plan_of_another_format_says_so() -> None:
    with pytest.raises(ConfigurationError, match="format 2"):
        from_file(to_file(PLAN).replace('"perdure_plan": 1', '"perdure_plan": 2'))


# -- drift ------------------------------------------------------------------------------------------------------------


def kept(described: Describe) -> tuple[Plan, Any, Real]:
    description = described("")
    real = realized(description)
    stopped = replace(real, containers=tuple(replace(each, running=False) for each in real.containers))
    return from_file(to_file(plan(description.wanted, stopped))), description, stopped


def test_a_plan_of_what_is_still_so_is_applied(described: Describe) -> None:
    saved, description, real = kept(described)
    check_fresh(saved, plan(description.wanted, real))


def test_a_plan_is_refused_when_what_runs_has_changed(described: Describe) -> None:
    """Also where the actions would be the same."""
    saved, description, real = kept(described)
    drifted = replace(real, containers=tuple(replace(each, restart="always") for each in real.containers))
    with pytest.raises(PlanStale, match="What runs has changed"):
        check_fresh(saved, plan(description.wanted, drifted))


def test_a_plan_is_refused_when_the_project_has_changed(described: Describe) -> None:
    saved, _, real = kept(described)
    other = described("[deploy.gateway]\nport = 9000")
    with pytest.raises(PlanStale, match="The project has changed"):
        check_fresh(saved, plan(other.wanted, real))


def test_a_plan_that_was_edited_is_refused_and_the_project_is_not_blamed(described: Describe) -> None:
    saved, description, real = kept(described)
    now = plan(description.wanted, real)
    assert saved.actions
    with pytest.raises(PlanStale, match="its file was edited"):
        check_fresh(replace(saved, actions=saved.actions[1:]), now)


def test_a_plan_that_was_applied_already_is_said(described: Describe) -> None:
    saved, description, _ = kept(described)
    with pytest.raises(PlanStale, match="or the plan was applied already"):
        check_fresh(saved, plan(description.wanted, realized(description)))


def test_a_plan_of_another_project_is_refused(described: Describe) -> None:
    saved, description, real = kept(described)
    with pytest.raises(PlanStale, match="'other'"):
        check_fresh(replace(saved, project="other"), plan(description.wanted, real))


def test_images_of_others_are_no_drift(described: Describe) -> None:
    saved, description, real = kept(described)
    image = replace(real.images[0], reference="perdure-other-server:1", id="sha256:other")
    check_fresh(saved, plan(description.wanted, replace(real, images=(*real.images, image))))
