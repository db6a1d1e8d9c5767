"""What the shapes of the HTTP API have in common: strict requests, closed replies, pages and the error envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

T = TypeVar("T")

MAX_PAGE = 200


class Request(BaseModel):
    """Refuses a field it does not know and names the one that was probably meant."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_fields_only(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise ValueError("A JSON object is needed as the body.")
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in given:
            if name not in known:
                raise ValueError(_unknown(str(name), known))
        return given


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1)
    hint = f"Did you mean `{close[0]}`?" if close else f"Known: {', '.join(f'`{field}`' for field in known)}."
    return f"There is no field `{name[:60]}`. {hint}"


class PageQuery(Request):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    cursor: Annotated[str, Field(max_length=500)] | None = Field(None, description="`next` of the page before.")


def text_of(asked: str | None) -> str | None:
    """What to search for; an empty field asks for nothing."""
    return asked if asked is not None and asked.strip() else None


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Page(Reply, Generic[T]):
    items: list[T]
    next: str | None = Field(description="The cursor of the next page, null at the end.")


class ErrorEnvelope(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"code": "NOT_FOUND", "message": "There is nothing with this id."}]}
    )

    code: str
    message: str
    conversation: str | None = None
    turn: str | None = None
    pending: list[str] | None = Field(None, description="Ids of the cards that wait for a decision.")
    decision: str | None = Field(None, description="`APPROVAL_DECIDED`: what was decided before.")
    decided_by: str | None = Field(None, description="`APPROVAL_DECIDED`: by whom.")
    decided_at: datetime | None = Field(None, description="`APPROVAL_DECIDED`: when.")
