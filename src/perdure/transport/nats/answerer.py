"""The agent's side of JSON-RPC: a table of methods behind the agent's subject."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from perdure.clock import Clock
from perdure.errors import NotReady, PerdureError, TooLarge
from perdure.transport.nats.caller import DESCRIBE
from perdure.transport.nats.connection import Connection, Disconnected, Message, Subscription
from perdure.transport.nats.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Request,
    RpcError,
    decode_request,
    encode_error,
    encode_result,
    request_id_in,
    split,
    to_rpc_error,
)
from perdure.transport.nats.names import QUEUE_GROUP, Names

MEMORY_SECONDS = 300.0
MEMORY_BYTES = 32_000_000
MEMORY_REPLIES = 20_000

log = structlog.get_logger("perdure.nats")

P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Method(Generic[P]):
    """`params`: a model with `extra="forbid"`. `handle` gets it valid and returns JSON; what it raises of PerdureError goes
    to the client, anything else stays in the log."""

    params: type[P]
    handle: Callable[[P], Awaitable[Any]]


class Answerer:
    """Answers for one agent. Each request is its own task; over `max_concurrent` it is told NotReady. A request that comes
    again (same id of at least 16 characters, same content) joins the first or gets its remembered reply for five minutes."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        methods: Mapping[str, Method[Any]],
        *,
        clock: Clock,
        max_concurrent: int = 256,
    ) -> None:
        """`agent/describe` of `methods` also answers discovery."""
        self._connection, self._methods = connection, methods
        self._requests, self._discover = names.requests(agent), names.discover
        self._max_concurrent = max_concurrent
        self._remembered = Remembered(clock)
        self._under_way: dict[object, asyncio.Task[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """From now on requests arrive; while the connection is away, from its next connect on."""
        self._subscriptions = [
            await self._connection.subscribe(self._requests, self._hear, queue=QUEUE_GROUP),
            await self._connection.subscribe(self._discover, self._hear_discovery),
        ]

    async def stop(self, *, within_seconds: float) -> None:
        """Takes no more requests, waits for those under way, cuts the rest (they are told NotReady)."""
        subscriptions, self._subscriptions = self._subscriptions, []
        await asyncio.gather(*(each.leave() for each in subscriptions))
        tasks = set(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=within_seconds)
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def busy(self) -> int:
        """Requests under way now."""
        return len(self._tasks)

    # -- arrival ------------------------------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        self._begin(message, self._methods)

    def _hear_discovery(self, message: Message) -> None:
        self._begin(message, {DESCRIBE: self._methods[DESCRIBE]} if DESCRIBE in self._methods else {})

    def _begin(self, message: Message, methods: Mapping[str, Method[Any]]) -> None:
        task = asyncio.create_task(self._serve(message, methods, crowded=len(self._tasks) >= self._max_concurrent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: Message, methods: Mapping[str, Method[Any]], *, crowded: bool) -> None:
        try:
            request = decode_request(message.data)
        except RpcError as error:
            await self._reply(message, encode_error(request_id_in(message.data), error))
            return
        digest = hashlib.sha256(message.data).digest() if request.unique else None
        known = self._remembered.reply(digest) if digest else None
        if known is None and crowded and digest not in self._under_way:
            known = encode_error(request.id, to_rpc_error(NotReady("This agent has too many requests under way.")))
        await self._reply(message, known or await self._joined(digest or object(), request, methods))

    async def _joined(self, key: object, request: Request, methods: Mapping[str, Method[Any]]) -> bytes:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._answer(key, request, methods))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _answer(self, key: object, request: Request, methods: Mapping[str, Method[Any]]) -> bytes:
        try:
            reply = encode_result(request.id, await _called(request, methods))
        except RpcError as error:
            reply = encode_error(request.id, error)
        except NotReady as error:  # to ask again is what it asks for
            return encode_error(request.id, to_rpc_error(error))
        except PerdureError as error:
            reply = encode_error(request.id, to_rpc_error(error))
        except asyncio.CancelledError:
            leaving = NotReady("This agent is stopping. Send it again with the same Idempotency-Key.")
            return encode_error(request.id, to_rpc_error(leaving))
        except Exception:
            log.exception("a request failed", method=request.method)
            text = "The agent could not do this; its log says why."
            reply = encode_error(request.id, RpcError(INTERNAL_ERROR, text, {"code": "INTERNAL"}))
        if isinstance(key, bytes):
            self._remembered.keep(key, reply)
        return reply

    async def _reply(self, message: Message, data: bytes) -> None:
        if not message.reply:
            return
        try:
            try:
                parts = split(data, self._connection.max_bytes)
            except TooLarge as error:
                parts = split(
                    encode_error(request_id_in(message.data), to_rpc_error(error)), self._connection.max_bytes
                )
            for part in parts:
                await self._connection.publish(message.reply, part.data, headers=part.headers)
        except Disconnected:
            log.debug("the connection was lost before a reply", subject=message.subject)


async def _called(request: Request, methods: Mapping[str, Method[Any]]) -> Any:
    method = methods.get(request.method)
    if method is None:
        raise RpcError(METHOD_NOT_FOUND, f"There is no method {request.method[:100]!r} here.")
    try:
        params = method.params.model_validate(request.params)
    except ValidationError as error:
        raise RpcError(INVALID_PARAMS, _wrong(error), {"code": "BAD_REQUEST"}) from error
    return await method.handle(params)


def _wrong(error: ValidationError) -> str:
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    return " ".join(_fault(".".join(map(str, each["loc"])), each["msg"]) for each in faults[:5])


def _fault(where: str, said: str) -> str:
    """A sentence; a rule of our own is one by itself."""
    what = said.removeprefix("Value error, ").removesuffix(".")
    return f"{what}." if what != said.removesuffix(".") and not where else f"`{where or 'params'}`: {what}."


class Remembered:
    """Replies by request, for five minutes and 32 MB; the oldest go first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._replies: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def keep(self, key: bytes, reply: bytes) -> None:
        self._replies[key] = (self._clock.monotonic() + MEMORY_SECONDS, reply)
        self._size += len(reply)
        while self._replies and self._overfull():
            self._drop(next(iter(self._replies)))

    def reply(self, key: bytes) -> bytes | None:
        found = self._replies.get(key)
        if found is None:
            return None
        until, reply = found
        if until <= self._clock.monotonic():
            self._drop(key)
            return None
        return reply

    def _overfull(self) -> bool:
        oldest, _ = next(iter(self._replies.values()))
        return (
            (self._size > MEMORY_BYTES and len(self._replies) > 1)
            or len(self._replies) > MEMORY_REPLIES
            or oldest <= self._clock.monotonic()
        )

    def _drop(self, key: bytes) -> None:
        _, reply = self._replies.pop(key)
        self._size -= len(reply)
