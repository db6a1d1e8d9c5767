"""JSON-RPC 2.0 as Perdure speaks it: the envelope, errors both ways, replies in parts. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.errors import BadRequest, PerdureError, TooLarge
from perdure.transport.nats.wire import Malformed, decode, encode

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
PERDURE_ERROR = -32000

PART = "Perdure-Part"
"""Header of a reply in parts: which one this is, from 1."""

PARTS = "Perdure-Parts"
MAX_REPLY_BYTES = 32_000_000
MIN_UNIQUE_ID = 16
"""A shorter id is somebody's counter: it does not tell a repeated request from another one."""

_MAX_ID = 200


class RpcError(Exception):
    """What a reply's `error` holds. `document`: the reply's `error` object."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        self.code, self.message, self.data = code, message, dict(data or {})
        super().__init__(message)

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.code, "message": self.message}
        return {**told, "data": self.data} if self.data else told


@dataclass(frozen=True, slots=True)
class Request:
    id: str | int | None
    """None: a notification, which gets no reply."""

    method: str
    params: Mapping[str, Any]

    @property
    def unique(self) -> bool:
        """Whether its id tells a repetition of this very request from another one."""
        return isinstance(self.id, str) and len(self.id) >= MIN_UNIQUE_ID


def new_id() -> str:
    return secrets.token_hex(16)


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(method: str, params: Mapping[str, Any], request_id: str) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def decode_request(data: bytes) -> Request:
    """Raises RpcError."""
    try:
        document = decode(data)
    except Malformed as error:
        raise RpcError(PARSE_ERROR, f"The request is {error}.") from error
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'A request is one object with `"jsonrpc": "2.0"`, `id`, `method` and `params`.')
    request_id = document.get("id")
    if not _is_id(request_id):
        raise RpcError(INVALID_REQUEST, f"`id` is text of at most {_MAX_ID} characters, unique to this request.")
    method, params = document.get("method"), document.get("params", {})
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "`method` is text.")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "`params` is an object; they are given by name.")
    return Request(request_id, method, params)


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_ID
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def request_id_in(data: bytes) -> str | int | None:
    """The id of a request that is not valid, where it has one: its reply names it."""
    try:
        document = decode(data)
    except Malformed:
        return None
    found = document.get("id") if isinstance(document, dict) else None
    return found if isinstance(found, str | int) and _is_id(found) else None


# -- replies ----------------------------------------------------------------------------------------------------------


def encode_result(request_id: str | int | None, result: Any) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: str | int | None, error: RpcError) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error.document})


def decode_reply(data: bytes, request_id: str | int | None) -> Any:
    """The result. Raises RpcError for a reply that holds one, Malformed for bytes that are no reply to this request."""
    document = decode(data)
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0":
        raise Malformed("no JSON-RPC reply")
    if "error" in document:
        raise _error_in(document["error"])
    if document.get("id") != request_id or "result" not in document:
        raise Malformed("no reply to this request")
    return document["result"]


def _error_in(error: Any) -> RpcError:
    match error:
        case {"code": int(code), "message": str(message), **rest}:
            data = rest.get("data")
            return RpcError(code, message, data if isinstance(data, dict) else None)
    raise Malformed("an error without code and message")


# -- errors -----------------------------------------------------------------------------------------------------------


def to_rpc_error(error: PerdureError) -> RpcError:
    """The code -32602 is for params that are not valid; every other error of Perdure is told by `data.code`."""
    data: dict[str, Any] = {"code": error.code}
    for name in ("conversation", "turn"):
        value = getattr(error, name)
        if value is not None:
            data[name] = value
    if error.details:
        data["details"] = error.details
    return RpcError(INVALID_PARAMS if type(error) is BadRequest else PERDURE_ERROR, error.message, data)


def to_perdure_error(error: RpcError, *, agent: str) -> PerdureError:
    """The class that the agent raised, by its code; PerdureError with that code for one that is not known here."""
    if error.code == METHOD_NOT_FOUND:
        return BadRequest(f"{error.message} Agent {agent} is of another version: run the same one everywhere.")
    code = error.data.get("code")
    kind = BadRequest if code is None and error.code == INVALID_PARAMS else _CLASSES.get(str(code), PerdureError)
    details = error.data.get("details")
    raised = kind(
        error.message,
        conversation=_text(error.data.get("conversation")),
        turn=_text(error.data.get("turn")),
        details=details if isinstance(details, dict) else None,
    )
    if kind is PerdureError and isinstance(code, str):
        raised.code = code
    return raised


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _classes(kind: type[PerdureError]) -> Iterator[tuple[str, type[PerdureError]]]:
    """Those with a code of their own that are told by message, conversation, turn and details alone."""
    for each in kind.__subclasses__():
        if "code" in vars(each) and each.__init__ is PerdureError.__init__:
            yield each.code, each
        yield from _classes(each)


_CLASSES = dict(_classes(PerdureError))


# -- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    data: bytes
    headers: Mapping[str, str]


def split(data: bytes, max_bytes: int) -> list[Part]:
    """A reply as messages of at most `max_bytes`; one without headers when it fits. Raises TooLarge."""
    if len(data) <= max_bytes:
        return [Part(data, {})]
    if len(data) > MAX_REPLY_BYTES:
        raise TooLarge(f"The reply has {len(data):,} bytes; {MAX_REPLY_BYTES:,} is the most. Ask for less at once.")
    pieces = [data[start : start + max_bytes] for start in range(0, len(data), max_bytes)]
    return [Part(piece, {PART: str(number), PARTS: str(len(pieces))}) for number, piece in enumerate(pieces, start=1)]


@dataclass(slots=True)
class Joined:
    """Puts the parts of one reply together; they come in order, on one inbox."""

    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add(self, part: Part) -> bytes | None:
        """The whole reply once all is there. Raises Malformed, and TooLarge past what a reply may have."""
        number, count = _number(part.headers.get(PART)), _number(part.headers.get(PARTS))
        if number is None and count is None:
            return part.data
        if number is None or count is None or number != len(self._pieces) + 1 or number > count:
            raise Malformed("a part of a reply is missing, or its headers make no sense")
        self._pieces.append(part.data)
        self._size += len(part.data)
        if self._size > MAX_REPLY_BYTES:
            raise TooLarge(f"The reply has more than {MAX_REPLY_BYTES:,} bytes. Ask for less at once.")
        return b"".join(self._pieces) if number == count else None


def _number(header: str | None) -> int | None:
    if header is None:
        return None
    return int(header) if header.isascii() and header.isdigit() and len(header) <= 9 else -1
