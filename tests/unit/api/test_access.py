"""Who gets in: credentials, one-time links, Host and Origin, the token's file, the headers of every answer."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure.api.auth import LINK_SECONDS, SESSION_SECONDS, Access, load_or_create_token
from perdure.config import Settings
from perdure.errors import ConfigurationError, Forbidden, Unauthorized
from perdure.testing import FakeClock

from .conftest import TOKEN, FakeAgents, Running

PORT = 8700
OPEN = {"/api/healthz", "/api/readyz", "/login"}


def scope(method: str = "GET", path: str = "/api/turns", **headers: str | list[str]) -> dict[str, Any]:
    given = {"host": f"127.0.0.1:{PORT}"} | headers
    pairs = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in given.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "server": ("127.0.0.1", PORT),
        "headers": pairs,
    }


def bearer(method: str = "GET", path: str = "/api/turns", **headers: str | list[str]) -> dict[str, Any]:
    return scope(method, path, authorization=f"Bearer {TOKEN}", **headers)


def make_access(**settings: Any) -> Access:
    return Access(TOKEN, Settings(**settings))


# -- every route ------------------------------------------------------------------------------------------------------


async def test_every_route_refuses_a_stranger(server: Running, agents: FakeAgents) -> None:
    async with server.client() as client:
        described = (await client.get("/api/openapi.json")).json()["paths"]
    routes = [(method, path) for path, methods in described.items() for method in methods]
    routes += [
        ("get", "/"),
        ("get", "/api/openapi.json"),
        ("get", "/nope"),
        ("post", "/api/nope"),
        ("options", "/api/chat"),
    ]
    async with server.client(headers={"Authorization": "Bearer wrong"}) as wrong, server.client() as none:
        del none.headers["Authorization"]
        for method, path in routes:
            if path in OPEN:
                continue
            for client in (wrong, none):
                response = await client.request(method, path.replace("{id}", "mine"))
                assert (response.status_code, response.json()["code"]) == (401, "UNAUTHORIZED"), (method, path)
                assert response.headers["www-authenticate"].startswith("Bearer")
    assert agents.calls == []


async def test_every_route_with_an_id_hides_what_belongs_to_another(server: Running, agents: FakeAgents) -> None:
    """A new route with an id is in this test by itself: the list comes from the description."""
    async with server.client() as client:
        described = (await client.get("/api/openapi.json")).json()["paths"]
        asked = 0
        for path, methods in described.items():
            if "{id}" not in path:
                continue
            for method in methods:
                theirs = "theirs-turn" if path.startswith("/api/turns") else "theirs"
                body = {"title": "mine now"} if method == "patch" else None
                queries = ["?format=markdown", "?format=jsonl"] if path.endswith("export") else [""]
                for query in queries if method != "delete" else ["", "?cancel=1"]:
                    response = await client.request(method, path.replace("{id}", theirs) + query, json=body)
                    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), (method, path)
                    asked += 1
        bodies: list[dict[str, Any]] = [{"message": "x"}, {"resume": True}, {"resume": {"i": 1}}]
        for body in bodies:
            assert (await client.post("/api/chat", json=body | {"conversation": "theirs"})).status_code == 404
        for follow in "01":
            assert (await client.get(f"/api/chat?conversation=theirs&follow={follow}")).status_code == 404
    assert asked >= 7
    assert {arguments["owner"] for _, arguments in agents.calls} == {"local"}
    assert "theirs" in agents.conversations_of


async def test_health_needs_no_token_and_readiness_says_less_without(server: Running, agents: FakeAgents) -> None:
    agents.problems = ["The key OPENAI_API_KEY is missing."]
    async with server.client() as stranger:
        del stranger.headers["Authorization"]
        assert (await stranger.get("/api/healthz")).json() == {"status": "ok"}
        assert (await stranger.get("/api/readyz")).json() == {"status": "degraded"}


async def test_every_answer_has_the_security_headers(client: httpx2.AsyncClient) -> None:
    for path in ("/api/healthz", "/api/turns", "/api/nope", "/", "/login?key=x", "/metrics", "/api/turns?limit=0"):
        headers = (await client.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


# -- Host -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8700", "localhost:8700", "[::1]:8700", "LOCALHOST", "127.0.0.1"])
def test_loopback_names_are_served(host: str) -> None:
    assert make_access().admit(bearer(host=host)) is not None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "127.0.0.1.evil.example",
        "127.0.0.1.evil.example:8700",
        "localhost.",
        "localhost.:8700",
        "localhost:8701",
        "localhost:",
        "localhost:8700:8700",
        "localhost:08700",
        "notlocalhost",
        "sub.localhost",
        "user@localhost",
        "localhost:8700@evil.example",
        "127.1",
        "2130706433",
        "0.0.0.0:8700",
        "::1",
        "[::1",
        "[::ffff:127.0.0.1]:8700",
        "localhost, evil.example",
        "localhost/evil",
        "ⓛocalhost".encode().decode("latin-1"),
        "",
        [],
        ["localhost", "localhost"],
        ["localhost", "evil.example"],
    ],
)
def test_any_other_host_is_refused_even_with_the_token(host: str | list[str]) -> None:
    for path in ("/api/turns", "/api/healthz", "/login", "/"):
        with pytest.raises(Forbidden):
            make_access().admit(bearer(path=path, host=host))


def test_allowed_hosts_are_exact() -> None:
    access = make_access(allowed_hosts=("agents.example", "other.example:9000"))
    for host in ("agents.example", "agents.example:8700", "other.example:9000", "localhost"):
        assert access.admit(bearer(host=host))
    for host in ("agents.example:9000", "other.example", "other.example:8700", "x.agents.example", "agents.example.x"):
        with pytest.raises(Forbidden):
            access.admit(bearer(host=host))


def test_the_bound_address_is_served_but_never_a_wildcard() -> None:
    assert make_access(host="192.168.1.7").admit(bearer(host="192.168.1.7:8700"))
    with pytest.raises(Forbidden):
        make_access(host="0.0.0.0").admit(bearer(host="0.0.0.0:8700"))


async def test_a_request_without_a_host_gets_no_answer_from_the_application(server: Running) -> None:
    for head in ("GET /api/healthz HTTP/1.0\r\n\r\n", "GET /api/healthz HTTP/1.1\r\n\r\n"):
        reader, writer = await server.connect()
        writer.write(head.encode())
        answer = await reader.read()
        assert answer.split()[1] in {b"400", b"403"}
        assert b'"code":' in answer
        writer.close()


# -- Origin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "http://127.0.0.1:3000",
        "http://127.0.0.1",
        "http://localhost:8700",
        "http://127.0.0.1:8700.evil.example",
        "http://127.0.0.1:8700@evil.example",
        "http://127.0.0.1:8700/",
        "ws://127.0.0.1:8700",
        "file://",
        "127.0.0.1:8700",
        "",
        ["http://127.0.0.1:8700", "http://evil.example"],
    ],
)
def test_a_page_of_another_origin_is_refused_with_every_credential(method: str, origin: str | list[str]) -> None:
    access = make_access()
    with pytest.raises(Forbidden):
        access.admit(bearer(method, "/api/chat", origin=origin))
    with pytest.raises(Forbidden):
        access.admit(scope(method, "/api/chat", origin=origin, cookie=cookie(access)))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "garbage"])
def test_a_browser_that_says_it_comes_from_elsewhere_is_refused(site: str) -> None:
    access = make_access()
    for path in ("/api/chat", "/api/conversations/x"):
        with pytest.raises(Forbidden):
            access.admit(scope("GET", path, sec_fetch_site=site, cookie=cookie(access)))
    assert access.admit(scope("GET", "/", sec_fetch_site=site, cookie=cookie(access)))


def test_our_own_page_is_served_also_behind_a_proxy_that_ends_tls() -> None:
    access = make_access(allowed_hosts=("agents.example",))
    for origin in ("http://agents.example", "https://agents.example", "https://agents.example:443"):
        assert access.admit(scope("POST", "/api/chat", host="agents.example", origin=origin, cookie=cookie(access)))


def test_a_cookie_alone_changes_nothing() -> None:
    """A form of another page sends the cookie but cannot hide its origin; without any sign of origin it is refused."""
    access = make_access()
    with pytest.raises(Forbidden):
        access.admit(scope("POST", "/api/chat", cookie=cookie(access)))
    assert access.admit(scope("POST", "/api/chat", cookie=cookie(access), sec_fetch_site="same-origin"))
    assert access.admit(scope("GET", "/api/chat", cookie=cookie(access)))


# -- credentials ------------------------------------------------------------------------------------------------------


def test_the_scheme_is_read_without_regard_to_case() -> None:
    for header in (f"bearer {TOKEN}", f"BEARER  {TOKEN}"):
        assert make_access().admit(scope(authorization=header))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        "Bearer ÿÿ",
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
        ["Bearer wrong", f"Bearer {TOKEN}"],
    ],
)
def test_any_other_authorization_is_refused_also_beside_a_good_cookie(header: str | list[str]) -> None:
    access = make_access()
    with pytest.raises(Unauthorized):
        access.admit(scope(authorization=header, cookie=cookie(access)))


def test_the_token_in_a_query_or_another_header_is_no_credential() -> None:
    with pytest.raises(Unauthorized):
        make_access().admit(scope(path=f"/api/turns?token={TOKEN}", x_api_key=TOKEN))


def cookie(access: Access, clock: FakeClock | None = None) -> str:
    key = access.login_link("http://localhost").partition("key=")[2]
    return f"perdure_{PORT}={access.redeem(key)}"


def test_a_session_survives_a_restart_and_ends_with_its_token() -> None:
    session = cookie(make_access())
    assert make_access().admit(scope(cookie=session))
    with pytest.raises(Unauthorized):
        Access("another-token", Settings()).admit(scope(cookie=session))


def test_a_session_ends_after_thirty_days() -> None:
    clock = FakeClock()
    access = Access(TOKEN, Settings(), clock)
    session = cookie(access)
    clock.advance(SESSION_SECONDS - 1)
    assert access.admit(scope(cookie=session))
    clock.advance(2)
    with pytest.raises(Unauthorized):
        access.admit(scope(cookie=session))


@pytest.mark.parametrize("forged", ["", "x", "..", "99999999999.nonce.", "99999999999.nonce.deadbeef", '"', "ÿ.ÿ.ÿ"])
def test_a_forged_session_is_refused(forged: str) -> None:
    with pytest.raises(Unauthorized):
        make_access().admit(scope(cookie=f"perdure_{PORT}={forged}"))


def test_a_session_with_a_later_expiry_is_a_forgery() -> None:
    access = make_access()
    name, _, value = cookie(access).partition("=")
    expiry, rest = value.split(".", 1)
    with pytest.raises(Unauthorized):
        access.admit(scope(cookie=f"{name}={int(expiry) + 1}.{rest}"))


def test_a_session_of_another_port_is_not_ours() -> None:
    access = make_access()
    with pytest.raises(Unauthorized):
        access.admit(scope(cookie=cookie(access).replace("8700", "8701")))


def test_a_link_works_once_and_for_ten_minutes() -> None:
    clock = FakeClock()
    access = Access(TOKEN, Settings(), clock)
    first, second = (access.login_link("http://localhost").partition("key=")[2] for _ in range(2))
    assert access.redeem("wrong") is None
    assert access.redeem(first)
    assert access.redeem(first) is None
    clock.advance(LINK_SECONDS + 1)
    assert access.redeem(second) is None


async def test_the_printed_link_signs_a_browser_in(server: Running) -> None:
    link = server.access.login_link(server.url)
    async with server.client(follow_redirects=True) as browser:
        del browser.headers["Authorization"]
        refused = await browser.get("/", headers={"Accept": "text/html,*/*"})
        assert (refused.status_code, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")
        page = await browser.get(link, headers={"Accept": "text/html,*/*"})
        assert (page.status_code, page.url.path, page.url.query) == (200, "/", b"")
        set_cookie = page.history[0].headers["set-cookie"]
        assert set_cookie.startswith(f"perdure_{server.port}=")
        assert "HttpOnly" in set_cookie
        assert "SameSite=Strict" in set_cookie
        assert TOKEN not in set_cookie
        assert (await browser.get("/api/conversations")).status_code == 200
        assert (await browser.post("/api/chat", json={"message": "x"})).status_code == 403
        own = {"Origin": server.url}
        assert (await browser.post("/api/chat", json={"message": "x"}, headers=own)).status_code == 202
        used = await browser.get(link)
        assert (used.status_code, "used up" in used.text) == (401, True)


async def test_no_key_and_no_token_reaches_the_log(server: Running) -> None:
    link = server.access.login_link(server.url)
    async with server.client() as client:
        await client.get(link)
        await client.post("/api/chat", json={"message": "private words"})
        await client.get("/api/healthz")
    told = repr(server.logged)
    assert "/api/chat" in told
    assert "/api/healthz" not in told
    for secret in (TOKEN, link.partition("key=")[2], "private words"):
        assert secret not in told


# -- the token's file -------------------------------------------------------------------------------------------------


def test_a_token_is_made_once_beside_the_database_for_its_owner_alone(tmp_path: Path) -> None:
    token, path = load_or_create_token(Settings(), tmp_path / "perdure.db")
    assert path == tmp_path / "perdure.token"
    assert len(token) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_token(Settings(), tmp_path / "perdure.db") == (token, path)
    assert [file.name for file in tmp_path.iterdir()] == ["perdure.token"]


def test_a_token_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "perdure.token"
    path.write_text("kept\n")
    path.chmod(0o644)
    assert load_or_create_token(Settings(), tmp_path / "perdure.db")[0] == "kept"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_given_token_wins_over_a_given_file_and_both_over_the_made_one(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-file\n")
    database = tmp_path / "perdure.db"
    assert load_or_create_token(Settings(token="given", token_file=file), database) == ("given", None)
    assert load_or_create_token(Settings(token_file=file), database) == ("from-file", file)
    assert not (tmp_path / "perdure.token").exists()


@pytest.mark.parametrize("token", ["", "two words", "tab\t", "ключ", "line\nline"])
def test_a_token_that_no_header_can_carry_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigurationError, match="PERDURE_TOKEN"):
        load_or_create_token(Settings(token=token), tmp_path / "perdure.db")


def test_a_token_file_that_is_missing_or_a_planted_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="secret"):
        load_or_create_token(Settings(token_file=tmp_path / "secret"), tmp_path / "perdure.db")
    (tmp_path / "perdure.token").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("planted")
    with pytest.raises(ConfigurationError, match=r"perdure\.token"):
        load_or_create_token(Settings(), tmp_path / "perdure.db")
