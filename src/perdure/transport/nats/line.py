"""One TCP connection to a NATS server, from its dial to its loss. It is never mended: the next one is another line.

The library's own reconnect is off: it keeps what could not be sent and sends it much later, and waits for a dead socket
to take its last bytes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from nats import errors
from nats.aio.client import Client

from perdure.transport.nats.access import Access

CONNECT_SECONDS = 3

_PING = b"PING\r\n"
_NEVER = 10**6
_REFUSALS = ("authorization violation", "authentication", "no nkey", "account")


class Unreachable(Exception):
    """No server answered as one: a sentence about the last that was tried."""


class Refused(Exception):
    """A server is there and does not want us, or we must not trust it: what to do, one sentence."""


class _NoTls(errors.Error):
    pass


class Line(Client):
    def __init__(self, *, encrypted: bool) -> None:
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing will be read any more."""

        self._encrypted = encrypted

    @property
    def server_facts(self) -> dict[str, str]:
        url = self.connected_url
        facts = {name: str(self._server_info.get(name, "")) for name in ("version", "server_name")}
        return {**facts, "url": f"{url.scheme}://{url.hostname}:{url.port}" if url else ""}

    def hang_up(self) -> None:
        """What was not sent is not sent; whoever reads finds the end. The socket is not waited for: after a TLS handshake
        that failed, nobody would say that it is closed."""
        if not self.lost.done():
            self.lost.set_result(None)
        self._pending, self._pending_data_size = [], 0
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        self._transport = None

    # -- the library's, corrected -------------------------------------------------------------------------------------

    def _connect_command(self) -> bytes:
        if self._encrypted and not self._server_info.get("tls_required"):
            raise _NoTls("nats: the server does not demand TLS")
        command: bytes = super()._connect_command()
        return command

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """In line with what was published before it; the library's overtakes that, and `flush` would prove nothing."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(_PING)
        await self._flush_pending()

    async def _read_loop(self) -> None:
        try:
            await super()._read_loop()
        finally:
            if not self.lost.done():
                self.lost.set_result(None)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """The library's waits for a dead peer to take what is left, and leaves its tasks behind where that fails."""
        self.hang_up()
        await super()._close(status, do_cbs)


async def dial(
    access: Access,
    servers: list[str],
    *,
    name: str,
    inbox: str,
    on_error: Callable[[Exception], Awaitable[None]],
) -> Line:
    """Tries each server. Raises Unreachable, Refused, ConfigurationError (a file has become unusable)."""
    line = Line(encrypted=access.encrypted)
    last: list[Exception] = []

    async def keep(error: Exception) -> None:
        last.append(error)
        if line.is_connected:
            await on_error(error)

    try:
        await line.connect(
            servers=servers,
            name=name,
            inbox_prefix=inbox,
            error_cb=keep,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=_NEVER,
            pending_size=_NEVER * 1_000,
            **access.options(),
        )
        if line.is_connected:
            return line
    except (TimeoutError, errors.Error, OSError, ValueError, asyncio.LimitOverrunError) as error:
        if not isinstance(error, errors.NoServersError):
            last.append(error)
    except BaseException:
        await line.close()
        raise
    await line.close()
    raise _told(last, access)


def _told(found: list[Exception], access: Access) -> Unreachable | Refused:
    """The first refusal says more than the silence of another server."""
    where = ", ".join(access.servers)
    for error in found:
        told = _refusal(error, where)
        if told:
            return Refused(told)
    last = found[-1] if found else None
    if isinstance(last, OSError) and last.strerror:
        return Unreachable(f"No NATS server answers at {where}: {last.strerror}.")
    if isinstance(last, asyncio.TimeoutError | None):
        return Unreachable(f"No NATS server answers at {where} within {CONNECT_SECONDS:g} s.")
    return Unreachable(f"What answers at {where} does not speak NATS, or hangs up: {str(last).removeprefix('nats: ')}.")


def _refusal(error: Exception, where: str) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"The certificate of NATS at {where} is not trusted: {error.verify_message or error}. Name the authority that "
            "signed it (`nats_ca_file`), and the server by a name that stands in the certificate."
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"NATS at {where} does not accept the TLS connection: {error.reason or error}. Where it asks for a client's "
            "certificate, give `nats_certificate_file` and `nats_key_file`."
        )
    if isinstance(error, _NoTls):
        return (
            (
                f"NATS at {where} does not demand TLS, and a `tls://` address or a TLS file was given: nothing was sent to it. "
                "Configure `tls {{ … }}` in the server, or give a `nats://` address and no TLS files."
            )
            .replace("{{", "{")
            .replace("}}", "}")
        )
    text = str(error).lower()
    if isinstance(error, errors.AuthorizationError) or any(word in text for word in _REFUSALS):
        return (
            f"NATS at {where} refuses these credentials ({str(error).removeprefix('nats: ').strip(chr(39))}). Check "
            "`nats_credentials_file` or `nats_nkey_file` (or user and password in `nats_url`), and the users in the "
            "server's configuration."
        )
    return None
