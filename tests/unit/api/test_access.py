"""Who gets in: credentials, one-time links, Host and Origin, the token's file, the headers of every answer."""

from __future__ import annotations

import asyncio
import hashlib
import re
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure.api.auth import LINK_SECONDS, SESSION_SECONDS, Access, load_or_create_token, new_secret
from perdure.api.stream import Streams
from perdure.config import Settings
from perdure.errors import ConfigurationError, Forbidden, Unauthorized
from perdure.testing import FakeClock
from perdure.turns import AuditEntry, Person, Role, Token

from .conftest import (
    AT,
    DECIDER_SECRET,
    OPERATOR_SECRET,
    PATIENCE_SECONDS,
    TOKEN,
    USER_SECRET,
    FakeAgents,
    Running,
    gate_card,
    token,
)

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
    agents.cards_of = {"k-theirs": gate_card("k-theirs", "theirs", "somebody-else")}
    async with server.client(USER_SECRET) as client:
        described = (await client.get("/api/openapi.json")).json()["paths"]
        asked = 0
        for path, methods in described.items():
            if "{id}" not in path:
                continue
            theirs = {"turns": "theirs-turn", "approvals": "k-theirs"}.get(path.split("/")[2], "theirs")
            code = "APPROVAL_UNKNOWN" if theirs == "k-theirs" else "NOT_FOUND"
            for method in methods:
                body: dict[str, Any] | None = {"title": "mine now"} if method == "patch" else None
                if path == "/api/approvals/{id}" and method == "post":
                    body = {"decision": "approve"}
                if path.endswith("/fork"):
                    body = {"from": {"message": "m"}, "title": "mine now"}
                queries = ["?format=markdown", "?format=jsonl"] if path.endswith("export") else [""]
                for query in queries if method != "delete" else ["", "?cancel=1"]:
                    response = await client.request(method, path.replace("{id}", theirs) + query, json=body)
                    assert (response.status_code, response.json()["code"]) == (404, code), (method, path)
                    asked += 1
        bodies: list[dict[str, Any]] = [{"message": "x"}, {"resume": True}, {"resume": {"i": 1}}]
        for body in bodies:
            assert (await client.post("/api/chat", json=body | {"conversation": "theirs"})).status_code == 404
        for follow in "01":
            assert (await client.get(f"/api/chat?conversation=theirs&follow={follow}")).status_code == 404
        assert (await client.get("/api/approvals")).json()["items"] == []
        assert [each["id"] for each in (await client.get("/api/conversations")).json()["items"]] == ["anns"]
    assert asked >= 9
    assert {arguments["person"].name for _, arguments in agents.calls} == {"ann"}
    assert "theirs" in agents.conversations_of and agents.cards_of["k-theirs"].verdict is None


async def test_an_operator_reads_and_decides_what_belongs_to_another(server: Running, agents: FakeAgents) -> None:
    agents.cards_of = {"k1": gate_card("k1", "theirs", "somebody-else")}
    async with server.client(OPERATOR_SECRET) as client:
        for path in ("/api/conversations/theirs", "/api/turns/theirs-turn", "/api/approvals/k1", "/metrics"):
            assert (await client.get(path)).status_code == 200, path
        assert [card["id"] for card in (await client.get("/api/approvals")).json()["items"]] == ["k1"]
        decided = await client.post("/api/approvals/k1", json={"decision": "approve"})
        assert (decided.status_code, decided.json()["card"]["decided_by"]) == (202, "olga")


async def test_a_named_decider_sees_the_card_and_nothing_else_of_its_turn(server: Running, agents: FakeAgents) -> None:
    agents.cards_of = {"k1": gate_card("k1", "theirs", "somebody-else", deciders=("dora",))}
    async with server.client(DECIDER_SECRET) as client:
        for path in ("/api/conversations/theirs", "/api/turns/theirs-turn", "/api/chat?conversation=theirs"):
            assert (await client.get(path)).status_code == 404, path
        (card,) = (await client.get("/api/approvals")).json()["items"]
        assert (card["id"], card["deciders"], card["arguments"]) == ("k1", ["dora"], {"name": "web"})
        assert (await client.get("/api/approvals/k1")).status_code == 200
        async with server.client(OPERATOR_SECRET) as operator:
            refused = await operator.post("/api/approvals/k1", json={"decision": "approve"})
            assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert (await client.post("/api/approvals/k1", json={"decision": "deny"})).json()["card"][
            "decided_by"
        ] == "dora"


async def test_health_needs_no_token_and_readiness_says_less_without(server: Running, agents: FakeAgents) -> None:
    agents.problems = ["The key OPENAI_API_KEY is missing."]
    async with server.client() as stranger:
        del stranger.headers["Authorization"]
        assert (await stranger.get("/api/healthz")).json() == {"status": "ok"}
        assert (await stranger.get("/api/readyz")).json() == {"status": "degraded"}


async def test_every_answer_has_the_security_headers(client: httpx2.AsyncClient) -> None:
    for path in ("/api/healthz", "/api/turns", "/api/nope", "/login?key=x", "/metrics", "/api/turns?limit=0"):
        headers = (await client.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_the_page_loads_nothing_but_its_own(client: httpx2.AsyncClient) -> None:
    headers = (await client.get("/")).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-cache"


# -- Host -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8700", "localhost:8700", "[::1]:8700", "LOCALHOST", "127.0.0.1"])
async def test_loopback_names_are_served(host: str) -> None:
    assert await make_access().admit(bearer(host=host)) is not None


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
async def test_any_other_host_is_refused_even_with_the_token(host: str | list[str]) -> None:
    for path in ("/api/turns", "/api/healthz", "/login", "/"):
        with pytest.raises(Forbidden):
            await make_access().admit(bearer(path=path, host=host))


async def test_allowed_hosts_are_exact() -> None:
    access = make_access(allowed_hosts=("agents.example", "other.example:9000"))
    for host in ("agents.example", "agents.example:8700", "other.example:9000", "localhost"):
        assert await access.admit(bearer(host=host))
    for host in ("agents.example:9000", "other.example", "other.example:8700", "x.agents.example", "agents.example.x"):
        with pytest.raises(Forbidden):
            await access.admit(bearer(host=host))


async def test_the_bound_address_is_served_but_never_a_wildcard() -> None:
    assert await make_access(host="192.168.1.7").admit(bearer(host="192.168.1.7:8700"))
    with pytest.raises(Forbidden):
        await make_access(host="0.0.0.0").admit(bearer(host="0.0.0.0:8700"))


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
async def test_a_page_of_another_origin_is_refused_with_every_credential(method: str, origin: str | list[str]) -> None:
    access = make_access()
    with pytest.raises(Forbidden):
        await access.admit(bearer(method, "/api/chat", origin=origin))
    with pytest.raises(Forbidden):
        await access.admit(scope(method, "/api/chat", origin=origin, cookie=cookie(access)))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "garbage"])
async def test_a_browser_that_says_it_comes_from_elsewhere_is_refused(site: str) -> None:
    access = make_access()
    for path in ("/api/chat", "/api/conversations/x"):
        with pytest.raises(Forbidden):
            await access.admit(scope("GET", path, sec_fetch_site=site, cookie=cookie(access)))
    assert await access.admit(scope("GET", "/", sec_fetch_site=site, cookie=cookie(access)))


async def test_our_own_page_is_served_also_behind_a_proxy_that_ends_tls() -> None:
    access = make_access(allowed_hosts=("agents.example",))
    for origin in ("http://agents.example", "https://agents.example", "https://agents.example:443"):
        assert await access.admit(
            scope("POST", "/api/chat", host="agents.example", origin=origin, cookie=cookie(access))
        )


async def test_a_cookie_alone_changes_nothing() -> None:
    """A form of another page sends the cookie but cannot hide its origin; without any sign of origin it is refused."""
    access = make_access()
    with pytest.raises(Forbidden):
        await access.admit(scope("POST", "/api/chat", cookie=cookie(access)))
    assert await access.admit(scope("POST", "/api/chat", cookie=cookie(access), sec_fetch_site="same-origin"))
    assert await access.admit(scope("GET", "/api/chat", cookie=cookie(access)))


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_the_scheme_is_read_without_regard_to_case() -> None:
    for header in (f"bearer {TOKEN}", f"BEARER  {TOKEN}"):
        assert await make_access().admit(scope(authorization=header))


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
async def test_any_other_authorization_is_refused_also_beside_a_good_cookie(header: str | list[str]) -> None:
    access = make_access()
    with pytest.raises(Unauthorized):
        await access.admit(scope(authorization=header, cookie=cookie(access)))


async def test_the_token_in_a_query_or_another_header_is_no_credential() -> None:
    with pytest.raises(Unauthorized):
        await make_access().admit(scope(path=f"/api/turns?token={TOKEN}", x_api_key=TOKEN))


# -- named tokens -----------------------------------------------------------------------------------------------------


async def test_everybody_is_told_who_they_are(server: Running) -> None:
    people = {
        TOKEN: {"name": "admin", "role": "operator", "admin": True},
        OPERATOR_SECRET: {"name": "olga", "role": "operator", "admin": False},
        USER_SECRET: {"name": "ann", "role": "user", "admin": False},
    }
    for secret, told in people.items():
        async with server.client(secret) as client:
            assert (await client.get("/api/me")).json() == told


async def test_what_a_named_token_starts_belongs_to_its_name(server: Running, agents: FakeAgents) -> None:
    async with server.client(USER_SECRET) as client:
        assert (await client.post("/api/chat", json={"message": "hi"})).status_code == 202
    (asked,) = agents.asked("start")
    assert asked["person"] == Person("ann", "ann", Role.USER, admin=False)


async def test_the_servers_own_token_and_its_cookie_are_the_admin_who_owns_what_is_local() -> None:
    access = make_access()
    admin = Person("admin", "local", Role.OPERATOR, admin=True)
    assert await access.admit(bearer()) == await access.admit(scope(cookie=cookie(access))) == admin
    assert admin.scope is None


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "pdt_",
        "pdt_" + "u" * 42,
        "pdt_" + "u" * 44,
        "PDT_" + "u" * 43,
        "u" * 47,
        "pdt_" + "u" * 42 + "!",
        "x" * 30_000,
    ],
)
async def test_what_has_not_the_form_of_a_secret_is_never_looked_up(secret: str) -> None:
    asked: list[str] = []

    async def token_of(secret_hash: str) -> Token | None:
        asked.append(secret_hash)
        return token("ann", Role.USER)

    access = Access(TOKEN, Settings(), token_of=token_of)
    with pytest.raises(Unauthorized):
        await access.admit(scope(authorization=f"Bearer {secret}"))
    assert asked == []


async def test_an_unknown_secret_is_looked_up_once_by_its_hash_alone(server: Running, agents: FakeAgents) -> None:
    unknown = "pdt_" + "z" * 43
    async with server.client(unknown) as client:
        assert (await client.get("/api/turns")).status_code == 401
    assert agents.looked_up == [hashlib.sha256(unknown.encode()).hexdigest()]
    assert unknown not in repr(server.logged)


async def test_the_servers_own_token_is_looked_up_nowhere(server: Running, agents: FakeAgents) -> None:
    async with server.client() as client:
        assert (await client.get("/api/turns")).status_code == 200
    assert agents.looked_up == []


async def test_a_token_is_told_once_and_only_its_hash_is_kept(server: Running, agents: FakeAgents) -> None:
    async with server.client() as admin:
        made = await admin.post("/api/tokens", json={"name": "bob@example.com", "role": "user"})
        assert made.status_code == 201
        secret = made.json()["secret"]
        assert re.fullmatch(r"pdt_[A-Za-z0-9_-]{43}", secret)
        (asked,) = agents.asked("create_token")
        assert asked["secret_hash"] == hashlib.sha256(secret.encode()).hexdigest() and secret not in repr(agents.calls)
        listed = (await admin.get("/api/tokens")).text
        assert "bob@example.com" in listed and secret not in listed and asked["secret_hash"] not in listed
    assert secret not in repr(server.logged)
    async with server.client(secret) as bob:
        assert (await bob.get("/api/me")).json()["name"] == "bob@example.com"


async def test_two_secrets_are_never_the_same() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


@pytest.mark.parametrize("secret", [USER_SECRET, OPERATOR_SECRET])
async def test_only_the_servers_own_token_makes_lists_and_revokes_tokens(server: Running, secret: str) -> None:
    async with server.client(secret) as client:
        for response in (
            await client.get("/api/tokens"),
            await client.post("/api/tokens", json={"name": "x", "role": "operator"}),
            await client.delete("/api/tokens/ann"),
        ):
            assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "name", ["admin", "Local", "EXPIRY", "", "two words", "-x", "a/b", "x" * 65, "ann\n", "анна", "\x7f"]
)
async def test_a_name_that_means_the_server_or_is_none_is_refused(client: httpx2.AsyncClient, name: str) -> None:
    refused = await client.post("/api/tokens", json={"name": name, "role": "user"})
    assert refused.status_code == 400 and "`name`" in refused.json()["message"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"name": "x"}, "`role`"),
        ({"name": "x", "role": "root"}, "`user` or `operator`"),
        ({"role": "user"}, "`name`"),
        ({"name": 5, "role": "user"}, "`name`"),
        ({"name": "x", "role": "user", "admin": True}, "no field `admin`"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused(client: httpx2.AsyncClient, body: Any, told: str) -> None:
    refused = await client.post("/api/tokens", json=body)
    assert refused.status_code == 400 and told in refused.json()["message"]


async def test_a_revoked_token_is_refused_at_once_and_what_it_watches_ends(
    server: Running, agents: FakeAgents, streams: Streams
) -> None:
    watching = "/api/chat?conversation=anns&follow=1"
    async with (
        server.client(USER_SECRET) as ann,
        server.client() as admin,
        ann.stream("GET", watching) as hers,
        admin.stream("GET", watching) as other,
    ):
        assert hers.status_code == other.status_code == 200
        revoked = await admin.delete("/api/tokens/ann")
        assert (revoked.status_code, revoked.json()["revoked_at"]) == (200, "2026-01-02T03:04:05+00:00")
        with pytest.raises(httpx2.RemoteProtocolError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for _ in hers.aiter_raw():
                    pass
        assert (await ann.get("/api/me")).status_code == 401
        assert (await admin.get("/api/me")).status_code == 200
        assert len(streams) == 1, "the admin's own stream goes on"


async def test_a_stream_that_was_admitted_before_the_revoke_but_would_open_after_it_does_not(
    server: Running, agents: FakeAgents, streams: Streams
) -> None:
    streams.bar("ann")
    async with server.client(USER_SECRET) as ann:
        refused = await ann.get("/api/chat?conversation=anns&follow=1")
    assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHORIZED")
    assert len(streams) == 0


async def test_the_metrics_are_for_operators(server: Running) -> None:
    async with server.client(USER_SECRET) as client:
        assert (await client.get("/metrics")).status_code == 403


async def test_the_audit_is_shown_page_by_page(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.entries = [AuditEntry(7, AT, "olga", "decide", "c", "t", "k", {"decision": "deny"})]
    answer = (await client.get("/api/audit?limit=3&cursor=x")).json()
    assert answer == {
        "items": [
            {
                "number": 7,
                "at": "2026-01-02T03:04:05+00:00",
                "by": "olga",
                "action": "decide",
                "conversation": "c",
                "turn": "t",
                "card": "k",
                "detail": {"decision": "deny"},
            }
        ],
        "next": None,
    }
    (asked,) = agents.asked("audit")
    assert (asked["limit"], asked["cursor"]) == (3, "x")


# -- sessions ---------------------------------------------------------------------------------------------------------


def cookie(access: Access, clock: FakeClock | None = None) -> str:
    key = access.login_link("http://localhost").partition("key=")[2]
    return f"perdure_{PORT}={access.redeem(key)}"


async def test_a_session_survives_a_restart_and_ends_with_its_token() -> None:
    session = cookie(make_access())
    assert await make_access().admit(scope(cookie=session))
    with pytest.raises(Unauthorized):
        await Access("another-token", Settings()).admit(scope(cookie=session))


async def test_a_session_ends_after_thirty_days() -> None:
    clock = FakeClock()
    access = Access(TOKEN, Settings(), clock)
    session = cookie(access)
    clock.advance(SESSION_SECONDS - 1)
    assert await access.admit(scope(cookie=session))
    clock.advance(2)
    with pytest.raises(Unauthorized):
        await access.admit(scope(cookie=session))


@pytest.mark.parametrize("forged", ["", "x", "..", "99999999999.nonce.", "99999999999.nonce.deadbeef", '"', "ÿ.ÿ.ÿ"])
async def test_a_forged_session_is_refused(forged: str) -> None:
    with pytest.raises(Unauthorized):
        await make_access().admit(scope(cookie=f"perdure_{PORT}={forged}"))


async def test_a_session_with_a_later_expiry_is_a_forgery() -> None:
    access = make_access()
    name, _, value = cookie(access).partition("=")
    expiry, rest = value.split(".", 1)
    with pytest.raises(Unauthorized):
        await access.admit(scope(cookie=f"{name}={int(expiry) + 1}.{rest}"))


async def test_a_session_of_another_port_is_not_ours() -> None:
    access = make_access()
    with pytest.raises(Unauthorized):
        await access.admit(scope(cookie=cookie(access).replace("8700", "8701")))


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
