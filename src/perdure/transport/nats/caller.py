"""The client's side of JSON-RPC: calls to agents, with a deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog

from perdure.errors import AgentUnavailable, PerdureError, TooLarge
from perdure.transport.nats.connection import Connection, Disconnected, Message, NoResponders, NotPermitted, seen
from perdure.transport.nats.jsonrpc import (
    Joined,
    Part,
    RpcError,
    decode_reply,
    encode_request,
    new_id,
    to_perdure_error,
)
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import Malformed

DESCRIBE = "agent/describe"
AGAIN_SECONDS = 0.25
"""How long to wait before a request is sent again that nobody was there to hear."""

log = structlog.get_logger("perdure.nats")


class Caller:
    """One per process."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection, self._names = connection, names

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        """The result. While nobody listens or the connection is away it is tried again until the time is over. Raises the
        very error that the agent raised (by its code), AgentUnavailable when no reply came within the time (whether the
        request arrived is not known: say the same with the same `request_id` or idempotency key), TooLarge for params that
        do not fit into a message, BadRequest for a name that no agent can have."""
        subject, request = self._names.requests(agent), request_id or new_id()
        data = encode_request(method, params, request)
        if len(data) > self._connection.max_bytes:
            raise TooLarge(
                f"The request has {len(data):,} bytes; NATS takes {self._connection.max_bytes:,} (its `max_payload`)."
            )
        silence = _Silence(agent, within_seconds)
        try:
            async with asyncio.timeout(within_seconds):
                while True:
                    try:
                        return decode_reply(await self._reply(subject, data), request)
                    except (NoResponders, Disconnected) as error:
                        silence.because(error)
                        await self._pause(error)
        except TimeoutError as error:
            raise silence.told() from error
        except RpcError as error:
            raise to_perdure_error(error, agent=agent) from error
        except Malformed as error:
            raise PerdureError(f"Agent {agent} gave a reply that cannot be read: {error}.") from error
        except NotPermitted as error:
            raise AgentUnavailable(str(error)) from error

    async def _reply(self, subject: str, data: bytes) -> bytes:
        """All parts of the first reply."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answered.add_done_callback(seen)
        joined = Joined()

        def hear(reply: Message | Exception) -> None:
            if answered.done():
                return
            try:
                if isinstance(reply, Exception):
                    raise reply
                whole = joined.add(Part(reply.data, reply.headers))
            except Exception as error:
                answered.set_exception(error)
            else:
                if whole is not None:
                    answered.set_result(whole)

        replies = await self._connection.converse(subject, data, hear)
        try:
            return await answered
        finally:
            replies.close()

    async def _pause(self, error: Exception) -> None:
        if isinstance(error, Disconnected) and not self._connection.connected:
            await self._connection.until_connected()
        else:
            await asyncio.sleep(AGAIN_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311  (spreads callers, hides nothing)

    async def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        """What each agent of the namespace tells of itself (`agent/describe`), as they come, until the time is over. Raises
        AgentUnavailable when NATS is away or is lost meanwhile."""
        request = new_id()
        heard: asyncio.Queue[Message | Exception] = asyncio.Queue()
        data = encode_request(DESCRIBE, {}, request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_seconds
        try:
            replies = await self._connection.converse(self._names.discover, data, heard.put_nowait)
        except Disconnected as error:
            raise AgentUnavailable(str(error)) from error
        try:
            while (left := deadline - loop.time()) > 0:
                try:
                    reply = await asyncio.wait_for(heard.get(), left)
                except TimeoutError:
                    return
                if isinstance(reply, NoResponders):
                    return
                if isinstance(reply, Exception):
                    raise AgentUnavailable(str(reply)) from reply
                try:
                    described = decode_reply(reply.data, request)
                except (Malformed, RpcError) as error:
                    log.warning("an agent describes itself in a way that cannot be read", problem=str(error))
                else:
                    yield described
        finally:
            replies.close()


class _Silence:
    """Why no reply came: what is told when the time is over."""

    def __init__(self, agent: str, within_seconds: float) -> None:
        self._agent, self._seconds = agent, within_seconds
        self._last: Exception | None = None

    def because(self, error: Exception) -> None:
        self._last = error

    def told(self) -> AgentUnavailable:
        if isinstance(self._last, NoResponders):
            why = f"Agent {self._agent} is not there (waited {self._seconds:g} s). Start it; then send this again."
        elif isinstance(self._last, Disconnected):
            why = f"Agent {self._agent} cannot be reached: {self._last} Send this again with the same Idempotency-Key."
        else:
            why = (
                f"Agent {self._agent} did not answer within {self._seconds:g} s. What was said may have arrived: send it "
                "again with the same Idempotency-Key."
            )
        return AgentUnavailable(why)
