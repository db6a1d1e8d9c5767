"""The error table of the HTTP API: code → status, and the one envelope `{code, message, conversation?, turn?}`,
with what the error tells to machines beside it (`pending`, `decided_by`, …)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from perdure.api.wire import JSONReply
from perdure.errors import BadRequest, NotFound, PerdureError

STATUS: Mapping[str, int] = {
    "BAD_REQUEST": 400,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "AMBIGUOUS_RESUME": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "TURN_IN_PROGRESS": 409,
    "TURN_NOT_RESUMABLE": 409,
    "TURN_NOT_PARKED": 409,
    "APPROVAL_UNKNOWN": 404,
    "APPROVAL_DECIDED": 409,
    "FORK_POINT_GONE": 409,
    "AGENT_IN_USE": 409,
    "TOO_LARGE": 413,
    "NOT_READY": 503,
    "AGENT_UNAVAILABLE": 503,
    "STORAGE_ERROR": 503,
    "STORAGE_FULL": 507,
    "INTERNAL": 500,
}

_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="perdure"'},
    503: {"Retry-After": "1"},
    507: {"Retry-After": "30"},
}

HEAD_PATHS = frozenset({"/", "/api/healthz", "/api/readyz", "/api/openapi.json"})
"""Where HEAD is answered as GET is, without the body: what a monitor asks, cheap and without an effect."""

INTERNAL_MESSAGE = "A fault inside the server; its log has the details."

_log = structlog.get_logger("perdure.api")


class MethodNotAllowed(PerdureError):
    """This route exists, but not with this method."""

    code = "METHOD_NOT_ALLOWED"


def status_of(error: PerdureError) -> int:
    return STATUS.get(error.code, 500)


def envelope(error: PerdureError) -> dict[str, Any]:
    """What a client is told. Errors without a place in the table are faults of ours: their text stays in the log."""
    if status_of(error) == 500:
        return {"code": "INTERNAL", "message": INTERNAL_MESSAGE}
    told = {
        **error.details,
        "code": error.code,
        "message": error.message,
        "conversation": error.conversation,
        "turn": error.turn,
    }
    return {name: value for name, value in told.items() if value is not None}


def reply(error: PerdureError, headers: Mapping[str, str] | None = None) -> Response:
    status = status_of(error)
    return JSONReply(envelope(error), status_code=status, headers={**_HEADERS.get(status, {}), **(headers or {})})


def install(app: FastAPI) -> None:
    """Every way a route can fail ends in the envelope."""
    app.add_exception_handler(PerdureError, _on_perdure_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_fault)


async def _on_perdure_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PerdureError)
    if status_of(error) == 500:
        _log.error("request_failed", path=request.url.path, exc_info=error)
    return reply(error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return reply(BadRequest(sentence(error.errors())))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """What the router itself raises: no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return reply(NotFound(request.app.state.nothing.format(path=path)))
    if error.status_code == 405:
        allowed = ", ".join(allowed_methods(request))
        message = f"{path} does not take {request.method}; it takes {allowed}."
        return reply(MethodNotAllowed(message), {"Allow": allowed})
    return reply(BadRequest(str(error.detail)))


def allowed_methods(request: Request) -> Sequence[str]:
    """Every method that some route takes at this path; the router's own answer names those of one route."""
    methods = {"HEAD"} if request.url.path in HEAD_PATHS else set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= set(getattr(route, "methods", None) or ())
    return sorted(methods)


async def _on_fault(request: Request, error: Exception) -> Response:
    """Starlette raises the error again after this answer; the gate logs it there, once."""
    return JSONReply({"code": "INTERNAL", "message": INTERNAL_MESSAGE}, status_code=500)


def sentence(problems: Sequence[Mapping[str, Any]]) -> str:
    """pydantic's problems as one readable sentence each, field first."""
    return " ".join(dict.fromkeys(_problem(problem) for problem in problems))


def _problem(problem: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in problem["loc"] if part not in {"body", "query", "header", "path"})
    what = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "missing" and not where:
        return "A JSON object is needed as the body."
    if problem["type"] in {"value_error", "assertion_error"} and not where:
        return what
    what = what.removesuffix(".")
    return f"`{where}`: {what[:1].lower()}{what[1:]}." if where else f"{what}."
