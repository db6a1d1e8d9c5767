"""The description for programs, `/api/openapi.json`: every route with its errors, the envelope, both credentials."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from perdure.api.shapes import ErrorEnvelope

Responses = dict[int | str, dict[str, Any]]

_WHEN = {
    400: "`BAD_REQUEST`: the request is not valid; the message names the field.",
    404: "`NOT_FOUND` or `APPROVAL_UNKNOWN` (with `pending`): there is nothing with this id.",
    409: "`TURN_IN_PROGRESS` (of a parked turn with `pending`), `TURN_NOT_RESUMABLE`, `FORK_POINT_GONE`, `AGENT_IN_USE` or `APPROVAL_DECIDED` (with "
    "`decision`, `decided_by`, `decided_at`, `pending`); the message says what to do.",
    413: "`TOO_LARGE`: nothing was accepted.",
    422: "`IDEMPOTENCY_KEY_REUSED`: the key was used with another body.",
    503: "`NOT_READY` or `STORAGE_ERROR`: try again shortly.",
    507: "`STORAGE_FULL`: nothing was accepted.",
}
_EVERYWHERE = {
    "401": "`UNAUTHORIZED`: no token, a wrong one, or one that was revoked.",
    "403": "`FORBIDDEN`: a foreign Host or Origin, or not for this person.",
    "500": "`INTERNAL`: a fault of the server.",
}

STREAM: Responses = {
    200: {
        "description": "Server-sent events; the id of each is the cursor to continue from.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'event: end\ndata: {"seq":7,"conversation":"c","turn":"t","status":"completed"}\nid: 7\n\n',
            }
        },
    }
}

_ENVELOPE = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}


def errors(*statuses: int) -> Responses:
    return {status: {"model": ErrorEnvelope, "description": _WHEN[status]} for status in statuses}


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["ErrorEnvelope"] = ErrorEnvelope.model_json_schema()
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "perdure_8700",
            "description": "Set by the one-time link; the number is the port.",
        },
    }
    schema["security"] = [{"token": []}, {"session": []}]
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
    return schema


def _complete(path: str, operation: dict[str, Any]) -> None:
    """Adds what every route can answer; takes out the framework's own form of a validation error."""
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422", "")):
        del answers["422"]
        answers.setdefault("400", {"description": _WHEN[400], "content": _ENVELOPE})
    everywhere = _EVERYWHERE
    if path == "/api/healthz":
        operation["security"] = []
        everywhere = {"403": _EVERYWHERE["403"]}
    for status, description in everywhere.items():
        answers.setdefault(status, {"description": description, "content": _ENVELOPE})
