"""The page's routes, over a folder like a build."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from perdure.api.pages import Elsewhere
from perdure.panel.pages import elsewhere, routes

INDEX = (
    '<!doctype html><meta name="perdure-root" content="./"><script type="module" src="./assets/index-abc.js"></script>'
)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "assets" / "index-abc.js").write_text("export {};")
    (folder / "assets" / "secret.txt").write_text("no")
    (folder / "outside.js").write_text("no")
    return folder


@pytest.fixture
async def client(built: Path) -> AsyncIterator[httpx2.AsyncClient]:
    app = Starlette(routes=[*routes(built), Elsewhere("/{path:path}", elsewhere(built))])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://page") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "up"),
    [("/", "./"), ("/turns", "./"), ("/approvals", "./"), ("/server", "./"), ("/c/abc", "../"), ("/turns/abc", "../")],
)
async def test_a_deep_link_gets_the_page_with_the_way_up_to_the_root(
    client: httpx2.AsyncClient, path: str, up: str
) -> None:
    reply = await client.get(path)
    assert reply.status_code == 200
    assert f'src="{up}assets/index-abc.js"' in reply.text
    assert f'content="{up}"' in reply.text


async def test_the_page_is_asked_for_anew_and_allows_no_script_but_its_own(client: httpx2.AsyncClient) -> None:
    headers = (await client.get("/")).headers
    assert headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


async def test_an_asset_is_kept_for_good_under_its_name(client: httpx2.AsyncClient) -> None:
    reply = await client.get("/assets/index-abc.js")
    assert reply.headers["content-type"].startswith("text/javascript")
    assert "immutable" in reply.headers["cache-control"]
    assert reply.text == "export {};"


@pytest.mark.parametrize("name", ["gone.js", "secret.txt", "..%2Foutside.js", "%2e%2e/outside.js"])
async def test_nothing_but_the_build_s_assets_is_handed_out(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.get(f"/assets/{name}")).status_code == 404


async def test_the_api_s_paths_are_not_the_page_s(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/nothing")).status_code == 404


@pytest.mark.parametrize(("path", "up"), [("/nonsense", "./"), ("/c/", "../"), ("/turns/abc/steps", "../../")])
async def test_a_person_at_an_address_of_nothing_gets_the_page_and_a_program_does_not(
    client: httpx2.AsyncClient, path: str, up: str
) -> None:
    shown = await client.get(path, headers={"Accept": "text/html,*/*"})
    assert shown.status_code == 404
    assert f'src="{up}assets/index-abc.js"' in shown.text
    assert "default-src 'self'" in shown.headers["content-security-policy"]
    for told in (
        await client.get(path),
        await client.post(path, headers={"Accept": "text/html"}),
        await client.get(f"/api{path}", headers={"Accept": "text/html"}),
    ):
        assert told.status_code == 404
        assert "assets" not in told.text


async def test_without_a_build_the_page_says_what_builds_it(client: httpx2.AsyncClient, built: Path) -> None:
    (built / "index.html").unlink()
    reply = await client.get("/c/abc")
    assert reply.status_code == 200
    assert "make panel" in reply.text
    assert 'href="../api/readyz"' in reply.text
