"""The web page: its built files and the routes that hand them out. Its source is `panel/` at the root of the repository.

The build is static: `index.html` and files under `assets/` whose names follow from their contents. Every address in it is
relative, so that it works under any prefix a proxy takes off; a deep link gets the same page, the way up written into it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Route

BUILT: Final = Path(__file__).parent / "static"

PATHS: Final = ("/", "/c/{id}", "/turns", "/turns/{id}", "/approvals", "/server")
"""Where the page shows something of its own. `panel/src/app/App.tsx` has the same."""

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_UNBUILT: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Perdure</title>
</head>
<body>
<h1>Perdure</h1>
<p>This is a Perdure server: it runs LLM agents whose accepted messages are answered, whatever dies in between.</p>
<p>The panel is not built into this installation. In a clone of the repository <code>make panel</code> builds it; then reload
this page.</p>
<p>What there is without it:</p>
<ul>
<li>the HTTP API, described for programs in <a href="{up}api/openapi.json"><code>/api/openapi.json</code></a></li>
<li><code>perdure chat</code>, a conversation in the terminal</li>
<li>whether it is well: <a href="{up}api/readyz"><code>/api/readyz</code></a></li>
</ul>
</body>
</html>
"""


def routes(built: Path = BUILT) -> Sequence[BaseRoute]:
    """The page at `PATHS` and its assets. `built` is looked into at every request: it may be built while the server runs."""
    files = _Files(built)
    pages = [Route(path, files.page, include_in_schema=False) for path in PATHS]
    return [*pages, Route("/assets/{name}", files.asset, include_in_schema=False)]


def elsewhere(built: Path = BUILT) -> Callable[[Request], Awaitable[Response]]:
    """What a person gets at an address that nothing is at: the page all the same, which says so and leads on; with a 404."""
    files = _Files(built)

    async def page(request: Request) -> Response:
        answer = await files.page(request)
        answer.status_code = 404
        return answer

    return page


class _Files:
    def __init__(self, built: Path) -> None:
        self._built = anyio.Path(built)

    async def page(self, request: Request) -> Response:
        """Asked for anew each time: it names the assets of the version that runs."""
        up = "../" * (request.url.path.count("/") - 1) or "./"
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache"}
        try:
            html = await (self._built / "index.html").read_text("utf-8")
        except FileNotFoundError:
            return HTMLResponse(_UNBUILT.replace("{up}", up), headers=headers)
        return HTMLResponse(html.replace('="./', f'="{up}'), headers=headers)

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        media_type = _MEDIA_TYPES.get(Path(name).suffix)
        path = self._built / "assets" / name
        if media_type is None or name != path.name or not await path.is_file():
            raise HTTPException(404)
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return FileResponse(path, media_type=media_type, headers=headers)
