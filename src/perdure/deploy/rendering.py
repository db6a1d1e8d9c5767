"""A plan for people, for programs (`--json`) and for a later apply (`--out`). Pure; nothing of it holds a secret.

The file of a plan is its JSON. It has the digests of what was wanted and of what was there: an apply of it does what was read by
whoever approved it, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from perdure.deploy.files import PLAN_HEAD
from perdure.deploy.model import Action, CarryData, Change, Kind, Plan, Subject
from perdure.errors import ConfigurationError, PerdureError

FORMAT = 1
FORMAT_KEY = "perdure_plan"
NO_CHANGES = "No changes: everything is as the project file wants it."

_WORDS = {Kind.CREATE: "to make", Kind.UPDATE: "to change", Kind.REPLACE: "to replace", Kind.REMOVE: "to remove"}
_STYLES = {Kind.CREATE: "green", Kind.UPDATE: "yellow", Kind.REPLACE: "magenta", Kind.REMOVE: "red"}


class PlanStale(PerdureError):
    """The plan is not what would be done now. Make another one, read it, and apply that."""

    code = "PLAN_STALE"


@dataclass(frozen=True, slots=True)
class Line:
    """`style`: a color's name, or nothing."""

    text: str
    style: str = ""


# -- for people -------------------------------------------------------------------------------------------------------


def lines(plan: Plan) -> Iterator[Line]:
    yield from (Line(f"Note: {warning}", "yellow") for warning in plan.warnings)
    for action in plan.actions:
        yield Line(f"{action.kind:>3} {action.subject:<9} {action.name}", _STYLES[action.kind])
        yield Line(f"      {action.reason}", "dim")
        width = max((len(change.attribute) for change in action.changes), default=0)
        for change in action.changes:
            yield Line(f"      {change.attribute:<{width}}  {change.had} → {change.wants}")
        if action.carry_data is not None:
            yield Line(f"      {_carried(action.carry_data)}", "cyan")
    yield Line(NO_CHANGES if plan.empty else f"Plan: {summary(plan)}.", "bold")
    yield from (Line(note, "yellow") for note in plan.notes)
    for volume in plan.kept:
        yield Line(
            f"The volume {volume} holds data, such as conversations, and is not used any more. It is kept with all of it; what is lost with "
            "it, and how it is removed, is in docs/deploy.md.",
            "dim",
        )


def _carried(carry: CarryData) -> str:
    into = f"the volume {carry.volume}{', which must be empty' if carry.volume_exists else ''}"
    return (
        f"data: stopped, {carry.path} is copied into {into}, verified (integrity, count of turns), then the new one starts; the old "
        "one is removed when that is well, and started again when anything fails"
    )


def summary(plan: Plan) -> str:
    """`2 to make, 1 to replace`."""
    counts = _counts(plan)
    return ", ".join(
        f"{counts[kind.name.lower()]} {word}" for kind, word in _WORDS.items() if counts[kind.name.lower()]
    )


def _counts(plan: Plan) -> dict[str, int]:
    return {kind.name.lower(): sum(action.kind is kind for action in plan.actions) for kind in Kind}


# -- for programs -----------------------------------------------------------------------------------------------------


def as_json(plan: Plan) -> dict[str, Any]:
    return {
        FORMAT_KEY: FORMAT,
        "project": plan.project,
        "changes": not plan.empty,
        "summary": _counts(plan),
        "actions": [asdict(action) for action in plan.actions],
        "kept": list(plan.kept),
        "notes": list(plan.notes),
        "warnings": list(plan.warnings),
        "wanted": plan.wanted_digest,
        "real": plan.real_digest,
    }


def to_file(plan: Plan) -> str:
    """It begins with PLAN_HEAD: a plan that is kept in the project's folder is no part of the project."""
    text = json.dumps(as_json(plan), indent=2, ensure_ascii=False) + "\n"
    assert text.encode().startswith(PLAN_HEAD)
    return text


def from_file(text: str) -> Plan:
    """Raises ConfigurationError for what is no plan of this format."""
    try:
        content = json.loads(text)
        if content[FORMAT_KEY] != FORMAT:
            raise ConfigurationError(
                f"The plan has format {content[FORMAT_KEY]!r}; this version reads {FORMAT}. Make another plan with `perdure plan --out`."
            )
        return Plan(
            project=str(content["project"]),
            actions=tuple(_action(each) for each in content["actions"]),
            real_digest=str(content["real"]),
            wanted_digest=str(content["wanted"]),
            kept=tuple(map(str, content["kept"])),
            notes=tuple(map(str, content["notes"])),
            warnings=tuple(map(str, content.get("warnings", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError("This is not a plan that `perdure plan --out` wrote.") from error


def _action(content: Mapping[str, Any]) -> Action:
    carry = content["carry_data"]
    return Action(
        kind=Kind(content["kind"]),
        subject=Subject(content["subject"]),
        name=str(content["name"]),
        reason=str(content["reason"]),
        changes=tuple(Change(**change) for change in content["changes"]),
        carry_data=None if carry is None else CarryData(**carry),
        detaches=tuple(content["detaches"]),
    )


# -- for a later apply ------------------------------------------------------------------------------------------------


def check_fresh(saved: Plan, now: Plan) -> None:
    """`now`: the plan that would be made at this moment. Raises PlanStale when it is not the saved one, and says why."""
    if saved.project != now.project:
        raise PlanStale(f"The plan is of the project {saved.project!r}, the project file here is of {now.project!r}.")
    if saved.real_digest != now.real_digest:
        raise PlanStale(
            "What runs has changed since the plan was made, or the plan was applied already; nothing was done. Make another plan and read "
            "it: perdure plan"
        )
    # Warnings follow from the two states, and from whether the token is kept here: an apply has just seen to that.
    if replace(saved, warnings=()) != replace(now, warnings=()):
        if saved.wanted_digest == now.wanted_digest:
            raise PlanStale(
                "The plan is not what is to be done, although neither the project nor what runs has changed: its file was edited, or "
                "another version made it. Nothing was done. Make another plan and read it: perdure plan"
            )
        raise PlanStale(
            "The project has changed since the plan was made; nothing was done. Make another plan and read it: perdure plan. A file "
            "of its folder that is written all the time does not belong into an image: name it in `exclude` of [deploy]."
        )
