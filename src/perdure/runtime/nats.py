"""Whether NATS is where the settings say, lets us in and keeps streams: for `perdure doctor`."""

from __future__ import annotations

from perdure.config import Settings
from perdure.errors import ConfigurationError
from perdure.runtime.finding import Finding
from perdure.settings.values import without_passwords
from perdure.transport.nats.connection import Connection, Disconnected
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream, StreamError, StreamMissing

ANSWER_SECONDS = 5.0
_START = "start it: perdure nats-config > nats.conf && nats-server -c nats.conf"


async def examine_nats(settings: Settings) -> Finding:
    """Asks as a gateway does, and changes nothing."""
    address = without_passwords(settings.nats_url or "")
    try:
        names = Names(settings.nats_prefix, settings.namespace)
        connection = Connection(settings, name="perdure doctor", inbox=names.inbox("gateway"))
        await connection.start(wait_seconds=ANSWER_SECONDS)
    except ConfigurationError as error:
        return Finding("NATS", False, error.message, "correct the address, the credentials or the certificates")
    try:
        if not connection.connected:
            return Finding("NATS", False, f"No NATS server answers at {address}.", _START)
        version = connection.server.get("version", "")
        return await _stream(EventStream(connection, names), f"{address} answers (nats-server {version})")
    finally:
        await connection.close()


async def _stream(stream: EventStream, answers: str) -> Finding:
    try:
        made = await stream.identity() is not None
    except StreamMissing as error:
        return Finding("NATS", False, f"{answers}, without JetStream: {error}", _START)
    except (StreamError, Disconnected) as error:
        return Finding(
            "NATS", False, f"{answers}, but not about its stream: {error}", "see docs/nats.md, Permissions by role"
        )
    return Finding("NATS", True, answers if made else f"{answers}; the first agent makes the stream")
