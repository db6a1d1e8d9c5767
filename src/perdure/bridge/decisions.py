"""What is said about a card, as a verdict. The same rules as over HTTP; which decisions a card takes the journal knows."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from perdure.bridge.params import Said
from perdure.effects import INTERRUPT
from perdure.errors import BadRequest
from perdure.turns import DECISION_FIELDS, DECISIONS, DecisionKind, Verdict


def verdict_of(said: Said, kind: str | None = None) -> Verdict:
    """`kind`: of the card, where it is known. Raises BadRequest with the decisions that it takes, or the field that does not
    fit."""
    known = DecisionKind if kind is None else [each for each in DecisionKind if each in DECISIONS[kind]]
    if said.decision not in list(known):
        raise BadRequest(f"`decision`: {' or '.join(f'`{each}`' for each in known)}.")
    for name in ("arguments", "result", "value"):
        if getattr(said, name) is not None and name not in DECISION_FIELDS[said.decision]:
            raise BadRequest(f"`{name}` does not go with `{said.decision}`.")
    if said.decision == DecisionKind.ANSWER and "value" not in said.model_fields_set:
        raise BadRequest("`answer` needs the `value`; null is one, too.")
    note = (said.note or "").strip() or None
    return Verdict(DecisionKind(said.decision), said.arguments, note, said.result, said.value)


def verdict_in_resume(question: str, said: Any, kind: str) -> Verdict:
    """Of a card about a tool call an object with the `decision`; else what is said is the answer. Raises BadRequest."""
    if kind == INTERRUPT:
        return Verdict(DecisionKind.ANSWER, value=said)
    try:
        return verdict_of(Said.model_validate(said), kind)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise BadRequest(
            f'`resume`: {question} is about a tool call, say {{"decision": …}}; {where}: {first["msg"]}.'
        ) from error
    except BadRequest as error:
        raise BadRequest(f"`resume`: {question}: {error.message}") from error
