"""The connection, against a real server: who may come in, and what a loss does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure.errors import ConfigurationError, TooLarge
from perdure.transport.nats import connection as module
from perdure.transport.nats import exchange
from perdure.transport.nats.connection import (
    Connection,
    Disconnected,
    Message,
    NoResponders,
    NotPermitted,
)
from perdure.transport.nats.names import Names
from tests.servers.nats_access import (
    Authority,
    Permissions,
    nkey_user,
    operator_and_credentials,
    passwords,
    seed,
    tls,
)
from tests.servers.nats_server import NatsServer, Servers
from tests.servers.process import LIMIT_SECONDS
from tests.unit.transport.nats.conftest import Connect

SECRET = "secret-of-tests"


async def until(condition: Callable[[], Any]) -> None:
    """The connection rings no bell for some of what is waited for here."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, LIMIT_SECONDS)


async def lost(connection: Connection) -> None:
    with connection.listen() as bell:
        while connection.connected:
            await within(bell.wait())


# -- who may come in --------------------------------------------------------------------------------------------------


async def test_the_password_in_the_address_counts(servers: Servers, connect: Connect) -> None:
    server = await servers.start(access=passwords({"alice": Permissions()}))
    connection = await connect(server, nats_url=f"nats://alice:{SECRET}@127.0.0.1:{server.port}")
    assert connection.connected
    assert connection.problem is None
    assert SECRET not in str(connection.server)


async def test_wrong_passwords_say_what_to_do_and_no_secret(servers: Servers, connect: Connect) -> None:
    server = await servers.start(access=passwords({"alice": Permissions()}))
    with capture_logs() as logs, pytest.raises(ConfigurationError, match="nats_credentials_file") as raised:
        await connect(server, nats_url=f"nats://alice:wrong-one@127.0.0.1:{server.port}")
    assert "wrong-one" not in str(raised.value) + str(logs)
    with pytest.raises(ConfigurationError, match="refuses these credentials"):
        await connect(server)


async def test_an_nkey_lets_in_and_another_does_not(servers: Servers, connect: Connect, tmp_path: Path) -> None:
    own = seed()
    server = await servers.start(access=nkey_user(own))
    file = tmp_path / "user.nk"
    file.write_bytes(own + b"\n")
    assert (await connect(server, nats_nkey_file=file)).connected
    file.write_bytes(seed())
    with pytest.raises(ConfigurationError, match="nats_nkey_file"):
        await connect(server, nats_nkey_file=file)


async def test_the_credentials_of_an_operators_user_let_in(servers: Servers, connect: Connect, tmp_path: Path) -> None:
    own, others = tmp_path / "own.creds", tmp_path / "others.creds"
    server = await servers.start(access=operator_and_credentials(own), jetstream=False)
    operator_and_credentials(others)
    assert (await connect(server, nats_credentials_file=own)).connected
    with pytest.raises(ConfigurationError, match="refuses these credentials"):
        await connect(server, nats_credentials_file=others)


async def test_tls_is_checked_with_the_authority_that_was_named(
    servers: Servers, connect: Connect, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = await servers.start(access=tls(authority))
    assert (await connect(server, nats_ca_file=authority.file)).connected
    with pytest.raises(ConfigurationError, match="nats_ca_file"):
        await connect(server)
    with pytest.raises(ConfigurationError, match="not trusted"):
        await connect(server, nats_url=f"tls://localhost:{server.port}", nats_ca_file=authority.file)


async def test_a_server_that_asks_for_a_certificate_gets_one(
    servers: Servers, connect: Connect, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = await servers.start(access=tls(authority, ask_clients=True))
    certificate, key = authority.issue("client")
    files = {"nats_ca_file": authority.file, "nats_certificate_file": certificate, "nats_key_file": key}
    assert (await connect(server, **files)).connected
    with pytest.raises(ConfigurationError, match="nats_certificate_file"):
        await connect(server, nats_ca_file=authority.file)


async def test_a_server_without_tls_gets_nothing_where_tls_was_asked_for(
    servers: Servers, nats: NatsServer, connect: Connect, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="does not demand TLS"):
        await connect(nats, nats_url=f"tls://127.0.0.1:{nats.port}")
    with pytest.raises(ConfigurationError, match="does not demand TLS"):
        await connect(nats, nats_ca_file=Authority(tmp_path).file)


async def test_what_does_not_speak_nats_counts_as_not_there(names: Names, nats: NatsServer) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as impostor:
        port = impostor.sockets[0].getsockname()[1]
        connection = Connection(
            nats.settings(nats_url=f"nats://127.0.0.1:{port}"), name="test", inbox=names.inbox("gateway")
        )
        await connection.start(wait_seconds=0.1)
        try:
            await until(lambda: "does not speak NATS" in (connection.problem or ""))
            assert not connection.connected
        finally:
            await connection.close()


# -- coming and going -------------------------------------------------------------------------------------------------


async def test_a_process_starts_while_nats_is_down_and_connects_when_it_comes(servers: Servers, names: Names) -> None:
    server = await servers.start()
    server.kill()
    connection = Connection(server.settings(), name="test", inbox=names.inbox("gateway"))
    heard: list[bytes] = []
    await connection.subscribe("early", lambda message: heard.append(message.data))
    await connection.start(wait_seconds=0.05)
    try:
        assert not connection.connected
        with pytest.raises(Disconnected):
            await connection.publish("early", b"lost")
        await server.start()
        assert await connection.until_connected(LIMIT_SECONDS)
        await connection.publish("early", b"told")
        await until(lambda: heard)
        assert heard == [b"told"]
    finally:
        await connection.close()


async def test_wrong_credentials_are_told_also_when_the_server_comes_late(servers: Servers, names: Names) -> None:
    server = await servers.start(access=passwords({"alice": Permissions()}))
    server.kill()
    connection = Connection(server.settings(), name="test", inbox=names.inbox("gateway"))
    await connection.start(wait_seconds=0.05)
    try:
        await server.start()
        await until(lambda: "refuses these credentials" in (connection.problem or ""))
    finally:
        await connection.close()


async def test_after_a_loss_everything_stands_again_and_nothing_old_is_sent(servers: Servers, connect: Connect) -> None:
    server = await servers.start()
    connection = await connect(server)
    heard: list[bytes] = []
    losses: list[int] = []
    await connection.subscribe(
        "a.*", lambda message: heard.append(message.data), on_loss=lambda: losses.append(connection.generation)
    )
    for generation in (1, 2):
        assert connection.generation == generation
        await connection.publish("a.b", b"%d" % generation)
        await until(lambda: heard)
        assert heard == [b"%d" % generation]
        server.kill()
        await lost(connection)
        assert losses[-1] == generation
        for _ in range(3):
            with pytest.raises(Disconnected):
                await connection.publish("a.b", b"old")
        heard.clear()
        await server.start()
        assert await connection.until_connected(LIMIT_SECONDS)
    assert not heard
    assert len(losses) == 2


async def test_a_server_that_stops_in_order_is_met_again_too(servers: Servers, connect: Connect) -> None:
    server = await servers.start()
    connection = await connect(server)
    server.stop()
    await lost(connection)
    assert "was lost" in (connection.problem or "") or "No NATS server" in (connection.problem or "")
    await server.start()
    assert await connection.until_connected(LIMIT_SECONDS)
    assert connection.problem is None


async def test_a_server_that_falls_silent_counts_as_lost(
    servers: Servers, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PULSE_SECONDS", 0.2)
    server = await servers.start()
    connection = await connect(server)
    server.pause()
    with suppress(Disconnected):  # a slow machine has lost it before
        await connection.publish("big", b"x" * 1_000_000)
    await lost(connection)
    monkeypatch.setattr(module, "PULSE_SECONDS", LIMIT_SECONDS)
    server.resume()
    assert await connection.until_connected(LIMIT_SECONDS)


async def test_a_subscription_that_was_left_does_not_come_back(
    servers: Servers, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LEAVE_SECONDS", LIMIT_SECONDS)
    server = await servers.start()
    connection = await connect(server)
    left: list[Message] = []
    kept: list[Message] = []
    subscription = await connection.subscribe("a", left.append)
    await connection.subscribe("a", kept.append)
    await connection.publish("a", b"1")
    await subscription.leave()
    assert [each.data for each in left] == [b"1"], "what had arrived is handled before"
    await server.restart()
    await until(lambda: connection.generation == 2)
    await connection.publish("a", b"2")
    await until(lambda: len(kept) == 2)
    assert len(left) == 1


async def test_who_waits_for_a_reply_is_told_of_the_loss_at_once(servers: Servers, connect: Connect) -> None:
    server = await servers.start()
    asking, silent = await connect(server), await connect(server)
    await silent.subscribe("question", lambda message: None)
    answer = await asking.ask("question", b"?")
    server.kill()
    with pytest.raises(Disconnected):
        await within(answer)


# -- messages ---------------------------------------------------------------------------------------------------------


async def test_a_question_gets_its_own_answer(nats: NatsServer, names: Names, connect: Connect) -> None:
    asking, answering = await connect(nats), await connect(nats, agent="alpha")
    tasks: list[Any] = []
    await answering.subscribe(
        names.requests("alpha"),
        lambda message: tasks.append(
            asyncio.ensure_future(answering.publish(message.reply, message.data, headers=message.headers))
        ),
    )
    answers = [await asking.ask(names.requests("alpha"), b"%d" % n, headers={"N": f"{n}"}) for n in range(50)]
    got = await within(asyncio.gather(*answers))
    assert [(each.data, each.headers) for each in got] == [(b"%d" % n, {"N": f"{n}"}) for n in range(50)]


async def test_what_arrives_before_the_connection_counts_as_made_is_answered(
    nats: NatsServer, names: Names, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server delivers as soon as it knows a subscription; that it knows them all is heard a moment later."""
    asking, confirmed = await connect(nats), asyncio.Event()
    answering = Connection(nats.settings(), name="test", inbox=names.inbox("agent", "alpha"))
    flushed, tasks = answering._flushed, []

    async def late(line: Any) -> None:
        await confirmed.wait()
        await flushed(line)

    def answer(message: Message) -> None:
        tasks.append(asyncio.ensure_future(answering.publish(message.reply, b"here")))

    monkeypatch.setattr(answering, "_flushed", late)
    await answering.subscribe(names.requests("alpha"), answer)
    await answering.start(wait_seconds=0.01)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not tasks:
                with suppress(NoResponders):
                    assert (await (await asking.ask(names.requests("alpha")))).data == b"here"
        assert not answering.connected
        confirmed.set()
        assert await answering.until_connected(LIMIT_SECONDS)
        await within(asyncio.gather(*tasks))
    finally:
        confirmed.set()
        await answering.close()


async def test_nobody_there_is_told_at_once(nats: NatsServer, connect: Connect) -> None:
    answer = await (await connect(nats)).ask("nobody.at.all")
    with pytest.raises(NoResponders):
        await within(answer)


async def test_what_is_too_large_is_refused_before_it_is_sent(servers: Servers, connect: Connect) -> None:
    server = await servers.start(max_payload=10_000)
    connection = await connect(server)
    assert 8_000 < connection.max_bytes < 10_000
    heard: list[Message] = []
    await connection.subscribe("a", heard.append)
    headers = {"Nats-Msg-Id": "c" * 250, "Perdure-Kind": "chat-error"}
    await connection.publish("a", b"x" * connection.max_bytes, headers=headers)
    await until(lambda: heard)
    with pytest.raises(TooLarge, match="max_payload"):
        await connection.publish("a", b"x" * (connection.max_bytes + 1))
    assert connection.generation == 1, "the server would hang up"


async def test_much_at_once_arrives_in_order(nats: NatsServer, connect: Connect) -> None:
    sender, receiver = await connect(nats), await connect(nats)
    heard: list[bytes] = []
    await receiver.subscribe("flood", lambda message: heard.append(message.data[:4]))
    for number in range(300):
        await sender.publish("flood", b"%04d" % number + b"x" * 50_000)
    await until(lambda: len(heard) == 300)
    assert heard == [b"%04d" % number for number in range(300)]


async def test_what_is_not_permitted_is_told_to_who_asked_and_logged_with_the_place_to_look(
    servers: Servers, connect: Connect
) -> None:
    inboxes = "*.inbox.default.gateway.>"
    server = await servers.start(access=passwords({"alice": Permissions(publish=["allowed"], subscribe=[inboxes])}))
    connection = await connect(server, nats_url=f"nats://alice:{SECRET}@127.0.0.1:{server.port}")
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(NotPermitted, match=r"Forbidden\.Subject".lower()):
                await within(await connection.ask("Forbidden.Subject"))
        await connection.subscribe("forbidden.too", lambda message: None)
        await until(lambda: len([each for each in logs if each["log_level"] == "error"]) == 2)
    told = [(each["what"], each["subject"]) for each in logs if each["log_level"] == "error"]
    assert told == [("publish", "forbidden.subject"), ("subscription", "forbidden.too")]
    assert all("docs/nats.md" in each["see"] for each in logs if each["log_level"] == "error")
    assert connection.connected
    assert "forbidden.subject" in (connection.problem or "")


async def test_closing_sends_what_was_handed_over_and_leaves_nothing_behind(nats: NatsServer, connect: Connect) -> None:
    before = asyncio.all_tasks()
    sender, receiver = await connect(nats), await connect(nats)
    heard: list[Message] = []
    await receiver.subscribe("last.words", heard.append)
    await sender.publish("last.words", b"x" * 900_000)
    await sender.close()
    await until(lambda: heard)
    await receiver.close()
    await receiver.close()
    assert asyncio.all_tasks() == before
    with pytest.raises(Disconnected):
        await sender.publish("last.words", b"")


async def test_closing_while_nats_is_down_does_not_wait(servers: Servers, connect: Connect) -> None:
    server = await servers.start()
    before = asyncio.all_tasks()
    connection = await connect(server)
    server.kill()
    await lost(connection)
    await within(connection.close())
    assert asyncio.all_tasks() == before
