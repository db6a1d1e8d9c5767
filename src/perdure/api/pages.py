"""The few pages a browser gets that is not signed in. Static text: no script, no foreign origin, nothing echoed."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from perdure.api.auth import session_cookie
from perdure.api.context import Api

_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:38rem;margin:3rem auto;padding:0 1rem}code{font-size:.95em}"

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_CSP = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{text}
</body>
</html>
"""

_REFUSED = """<p>This server needs to know you. Open the one-time link that it printed when it started
(<code>http://…/login?key=…</code>), or send <code>Authorization: Bearer &lt;token&gt;</code>.</p>
<p>The token is in <code>perdure.token</code> beside the database, unless it was given as <code>PERDURE_TOKEN</code>.</p>"""

_USED_UP = """<p>A sign-in link works once, and for ten minutes. Restart the server for a new one, or send
<code>Authorization: Bearer &lt;token&gt;</code>.</p>"""

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def login(request: Request, api: Api, key: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Redeems a one-time link: signs this browser in and goes to the front page."""
    session = api.access.redeem(key)
    if session is None:
        return page("This link is used up", _USED_UP, 401)
    return RedirectResponse("./", 303, headers={"Set-Cookie": session_cookie(request.scope, session)})


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
    html = _PAGE.format(title=title, style=_STYLE, text=text)
    return HTMLResponse(html, status, headers={"Content-Security-Policy": _CSP})


def refused_page() -> HTMLResponse:
    return page("Please sign in", _REFUSED, 401)


class Elsewhere(Route):
    """The last of all routes: what a person's browser opens outside the API and nothing else answers. Programs get the envelope."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        asked = scope["type"] == "http" and scope["method"] == "GET" and wants_page(scope)
        return super().matches(scope) if asked else (Match.NONE, {})


def wants_page(scope: Scope) -> bool:
    """True for a person's browser that opens something outside the API."""
    accepts = b",".join(value for key, value in scope["headers"] if key == b"accept")
    return b"text/html" in accepts and not scope["path"].startswith("/api/")
