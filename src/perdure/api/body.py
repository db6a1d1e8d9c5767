"""Request bodies: bounded before they are read, checked before they are parsed by a route."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perdure.errors import BadRequest, TooLarge
from perdure.plain import GREATEST_INTEGER, LEAST_INTEGER, MAX_DEPTH, check_plain

BODY_SECONDS = 30.0
DRAIN_SECONDS = 10.0
DRAIN_BYTES = 64_000_000


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


async def read(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises TooLarge (before reading, when the length is declared), BadRequest, ClientGone."""
    if declared_length(scope) > limit:
        raise TooLarge(_too_large(limit))
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                if len(body) > limit:
                    raise TooLarge(_too_large(limit))
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise BadRequest(f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None


def check_head(scope: Scope) -> None:
    """Raises BadRequest for a body whose end is disputed (a proxy may see it elsewhere) or that would have to be unpacked."""
    if values(scope, b"content-length") and values(scope, b"transfer-encoding"):
        raise BadRequest(
            "Send either Content-Length or Transfer-Encoding: with both it is unclear where the body ends."
        )
    encodings = [value.strip().lower() for value in values(scope, b"content-encoding")]
    if any(encoding not in {b"", b"identity"} for encoding in encodings):
        shown = b", ".join(encodings).decode("latin-1")
        raise BadRequest(f"Content-Encoding {shown} is not taken. Send the body as it is, without Content-Encoding.")


def _too_large(limit: int) -> str:
    return f"The request is larger than {limit:,} bytes. Nothing was accepted; send a shorter message."


def declared_length(scope: Scope) -> int:
    """The Content-Length, 0 without one (the server has checked its form)."""
    return max((int(value) for value in values(scope, b"content-length") if value.isdigit()), default=0)


def expected(scope: Scope) -> bool:
    """True when a body was announced."""
    return declared_length(scope) > 0 or bool(values(scope, b"transfer-encoding"))


def values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was already read, then what follows (the disconnect)."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


async def answer_early(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends a complete answer although the body is still coming, then throws away what comes, within bounds.

    Closing at once would make the kernel reset the connection and many clients would lose the answer; so its last,
    empty piece is held back until the client has stopped sending.
    """
    if not expected(scope):
        await response(scope, receive, send)
        return
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    await _drain(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    drained = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while drained < DRAIN_BYTES:
                message = await receive()
                drained += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def check_json(scope: Scope, body: bytes) -> None:
    """Raises BadRequest unless the body is one JSON text of plain values, in UTF-8, and says so."""
    kinds = values(scope, b"content-type")
    if not body and not kinds:
        return
    if [_media_type(kind) for kind in kinds] != ["application/json"]:
        raise BadRequest("Send the body as JSON, with the header `Content-Type: application/json`.")
    if body:
        _check_plain(_parse(body))


def _media_type(value: bytes) -> str:
    kind, _, parameters = value.decode("latin-1").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    return kind.strip() if charset in {"", "charset=utf-8", "charset=utf8"} else "another charset"


def _parse(body: bytes) -> Any:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not UTF-8: byte {error.start} cannot be read.") from None
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_number
        )
    except json.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise BadRequest(f"The body is nested deeper than {MAX_DEPTH} levels.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise BadRequest("The body names a field twice in one object.")
    return members


def _refuse_constant(name: str) -> Any:
    raise BadRequest(f"{name} is not a JSON value.")


def _integer(digits: str) -> int:
    if len(digits) <= len(str(LEAST_INTEGER)):
        value = int(digits)
        if LEAST_INTEGER <= value <= GREATEST_INTEGER:
            return value
    raise BadRequest(f"The integer {_shown(digits)} does not fit into 64 bits. Send it as a string.")


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadRequest(f"The number {_shown(digits)} is larger than a 64-bit float can be. Send it as a string.")
    return value


def _shown(digits: str) -> str:
    return digits if len(digits) <= 40 else f"{digits[:37]}…"


def _check_plain(parsed: Any) -> None:
    try:
        check_plain(parsed, "The body")
    except ValueError as error:
        raise BadRequest(str(error)) from None
