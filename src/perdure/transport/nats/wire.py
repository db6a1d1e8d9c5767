"""What travels on the subjects of turns, tokens and news, as JSON and back. Pure. What comes in is foreign."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from perdure.events import Event, EventKind
from perdure.replication import JournalRows

SERVING = "serving"
LEAVING = "leaving"


class Malformed(ValueError):
    """Bytes that are not what the subject promises: the first thing that does not fit."""


@dataclass(frozen=True, slots=True)
class EventMessage:
    """A committed event on its turn's subject."""

    event: Event
    """Without its payload when it went by `reference`."""

    previous: int
    """The seq of the conversation's committed event before it; 0: there is none."""

    rows: JournalRows | None = None
    """Of its turn and conversation, as of the instant it was sent or later."""

    reference: bool = False
    """Too large for a message: ask its agent for the event (`events/read`)."""


@dataclass(frozen=True, slots=True)
class News:
    """What an agent tells of itself after every change of its journal, and every other second."""

    position: int
    """Of its journal (`Position.change`)."""

    boot: str
    """Another one: the process was started anew."""

    state: str = SERVING
    """Or `leaving`."""

    deleted: tuple[str, ...] = ()
    """Conversations deleted since the last news."""

    bells: tuple[str, ...] = ()
    """Topics that were rung (`Transport.ring`)."""

    since: int = 0
    """When its process began, in milliseconds of the epoch: of two that serve one agent the later one gives up."""


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. Lone surrogates survive, as escapes; NaN and infinities, which JSON has not, become null."""
    try:
        return _dump(value, ascii_only=False)
    except UnicodeEncodeError:
        return _dump(value, ascii_only=True)


def _dump(value: Any, *, ascii_only: bool) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=ascii_only, separators=(",", ":"))
    return text.encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def decode(data: bytes) -> Any:
    """Raises Malformed for what is not JSON, NaN and infinities included."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# -- events -----------------------------------------------------------------------------------------------------------


def event_to_json(event: Event) -> dict[str, Any]:
    return {**_bare(event), "payload": event.payload}


def _bare(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "conversation": event.conversation,
        "turn": event.turn,
        "attempt": event.attempt,
        "at": event.at.isoformat(),
        "kind": str(event.kind),
    }


def event_from_json(document: Any) -> Event:
    """Raises Malformed."""
    return _read(_EventForm, document).event()


def rows_to_json(rows: JournalRows) -> dict[str, Any]:
    dumped: dict[str, Any] = _ROWS.dump_python(rows, mode="json")
    return dumped


def rows_from_json(document: Any) -> JournalRows:
    """Raises Malformed."""
    try:
        return _ROWS.validate_python(document)
    except ValidationError as error:
        raise _malformed(error) from error


def encode_event(message: EventMessage, max_bytes: int) -> bytes:
    """Whole, or by reference when that would be more than `max_bytes`."""
    if not message.reference:
        whole: dict[str, Any] = {"event": event_to_json(message.event), "previous": message.previous}
        if message.rows is not None:
            whole["rows"] = rows_to_json(message.rows)
        data = encode(whole)
        if len(data) <= max_bytes:
            return data
    event = message.event
    reference = {"conversation": event.conversation, "seq": event.seq}
    return encode({"event": _bare(event), "previous": message.previous, "reference": reference})


def event_headers(event: Event) -> dict[str, str]:
    """With the id by which the stream knows a repeated message."""
    return {"Nats-Msg-Id": f"{event.conversation}:{event.seq}", "Perdure-Kind": str(event.kind)}


def decode_event(data: bytes) -> EventMessage:
    """Raises Malformed."""
    form = _read(_EventMessageForm, decode(data))
    event = form.event.event()
    if event.kind is EventKind.TOKEN:
        raise Malformed("a token is no committed event")
    if form.previous >= event.seq:
        raise Malformed(f"previous is {form.previous}, not below seq {event.seq}")
    return EventMessage(event, form.previous, form.rows, form.reference is not None)


def encode_token(event: Event) -> bytes:
    return encode({"event": event_to_json(event)})


def decode_token(data: bytes) -> Event:
    """Raises Malformed."""
    event = _read(_TokenMessageForm, decode(data)).event.event()
    if event.kind is not EventKind.TOKEN:
        raise Malformed(f"{event.kind} is no token")
    for field in ("message_id", "text"):
        if not isinstance(event.payload.get(field), str):
            raise Malformed(f"event.payload.{field}: not text")
    return event


# -- news -------------------------------------------------------------------------------------------------------------


def encode_news(news: News) -> bytes:
    document: dict[str, Any] = {"position": news.position, "boot": news.boot, "state": news.state}
    if news.deleted:
        document["deleted"] = news.deleted
    if news.bells:
        document["bells"] = news.bells
    if news.since:
        document["since"] = news.since
    return encode(document)


def decode_news(data: bytes) -> News:
    """Raises Malformed."""
    form = _read(_NewsForm, decode(data))
    return News(form.position, form.boot, form.state, form.deleted, form.bells, form.since)


# -- forms ------------------------------------------------------------------------------------------------------------


class _Form(BaseModel):
    """Fields that a later version adds are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _EventForm(_Form):
    seq: int = Field(ge=1)
    conversation: str = Field(min_length=1, max_length=200)
    turn: str = Field(min_length=1, max_length=200)
    attempt: int = Field(ge=0)
    at: AwareDatetime
    kind: EventKind
    payload: dict[str, Any] = {}

    def event(self) -> Event:
        return Event(self.seq, self.conversation, self.turn, self.attempt, self.kind, self.at, self.payload)


class _Reference(_Form):
    conversation: str
    seq: int


class _EventMessageForm(_Form):
    event: _EventForm
    previous: int = Field(ge=0)
    rows: JournalRows | None = None
    reference: _Reference | None = None


class _TokenMessageForm(_Form):
    event: _EventForm


class _NewsForm(_Form):
    position: int = Field(ge=0)
    boot: str
    state: str = SERVING
    deleted: tuple[str, ...] = ()
    bells: tuple[str, ...] = ()
    since: int = Field(default=0, ge=0)


_ROWS: TypeAdapter[JournalRows] = TypeAdapter(JournalRows)
_F = TypeVar("_F", bound=_Form)


def _read(form: type[_F], document: Any) -> _F:
    try:
        return form.model_validate(document)
    except ValidationError as error:
        raise _malformed(error) from error


def _malformed(error: ValidationError) -> Malformed:
    first = error.errors(include_input=False, include_url=False)[0]
    return Malformed(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}")
