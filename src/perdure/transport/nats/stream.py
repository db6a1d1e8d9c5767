"""The JetStream stream of committed events: a copy of what journals hold, which may vanish at any time."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from perdure.transport.nats.connection import (
    Connection,
    Disconnected,
    Message,
    NoResponders,
    NotPermitted,
    seen,
)
from perdure.transport.nats.names import Address, Names
from perdure.transport.nats.wire import (
    EventMessage,
    Malformed,
    decode,
    decode_event,
    encode,
    encode_event,
    event_headers,
)

DUPLICATE_WINDOW_SECONDS = 120.0
MAX_AGE_SECONDS = 7 * 86_400.0
ACK_SECONDS = 10.0
API_SECONDS = 5.0
BATCH = 200
BATCH_BYTES = 16_000_000
IDLE_CONSUMER_SECONDS = 30.0

_API = "$JS.API"
_SECOND = 1_000_000_000
_NO_STREAM = 10_059
_NAME_IN_USE = 10_058

log = structlog.get_logger("perdure.nats")


class StreamError(Exception):
    """JetStream refused. What it said."""


class StreamMissing(StreamError):
    """There is no stream (its store was lost), or no JetStream. `ensure` makes it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as the stream holds it."""

    seq: int
    """Of the stream."""

    address: Address
    message: EventMessage


class EventStream:
    def __init__(self, connection: Connection, names: Names, *, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        self._connection, self._names = connection, names
        self.problem: str | None = None
        """Why the stream is not what it should be, as `ensure` found it: one sentence for the operator."""

        self._wanted: dict[str, Any] = {
            "name": names.stream,
            "description": "Committed events of Perdure's turns; a copy of the agents' journals.",
            "subjects": [names.stream_subjects],
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "max_age": int(max_age_seconds * _SECOND),
            "max_msgs_per_subject": -1,
            "duplicate_window": int(min(DUPLICATE_WINDOW_SECONDS, max_age_seconds) * _SECOND),
            "allow_direct": True,
        }

    # -- the stream itself --------------------------------------------------------------------------------------------

    async def ensure(self) -> str:
        """Makes the stream, or brings its configuration in line (what it does not name, such as replicas and a limit of
        bytes, stays as the operator set it), and returns its identity: name and the instant it was made. Raises
        Disconnected, StreamError (StreamMissing without JetStream)."""
        info = await self._info()
        if info is None:
            info, self.problem = await self._created(), None
        elif self._differs(info["config"]):
            try:
                await self._api(f"STREAM.UPDATE.{self._names.stream}", {**info["config"], **self._wanted})
                self.problem = None
            except StreamError as error:
                self._tell_differing(info["config"], error)
        else:
            self.problem = None
        return self._identity_in(info)

    def _tell_differing(self, config: Mapping[str, Any], error: StreamError) -> None:
        differing = ", ".join(name for name, value in self._wanted.items() if config.get(name) != value)
        told = (
            f"The stream {self._names.stream} is not as Perdure makes it ({differing}), and cannot be changed: {error}. What it "
            "keeps may not be enough. Delete it (`nats stream rm`): it is made anew and filled from the journals."
        )
        if told != self.problem:
            log.warning("the stream of events stays as it is", stream=self._names.stream, problem=told)
        self.problem = told

    async def _created(self) -> Mapping[str, Any]:
        sizes = {"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1}
        try:
            return await self._api(f"STREAM.CREATE.{self._names.stream}", {**self._wanted, **sizes})
        except _ApiError as error:
            info = await self._info() if error.err_code == _NAME_IN_USE else None
            if info is None:
                raise
            return info  # another agent made it in between

    def _differs(self, config: Mapping[str, Any]) -> bool:
        return any(config.get(name) != value for name, value in self._wanted.items())

    async def identity(self) -> str | None:
        """Of the stream as it is; None: there is none. Raises Disconnected, StreamError."""
        info = await self._info()
        return None if info is None else self._identity_in(info)

    def _identity_in(self, info: Mapping[str, Any]) -> str:
        return f"{self._names.stream}@{info['created']}"

    async def last_seq(self) -> int:
        """Of the whole stream; 0: it is empty. Raises StreamMissing, StreamError, Disconnected."""
        info = await self._info()
        if info is None:
            raise StreamMissing(f"There is no stream {self._names.stream}.")
        return int(info["state"]["last_seq"])

    async def _info(self) -> Mapping[str, Any] | None:
        try:
            return await self._api(f"STREAM.INFO.{self._names.stream}", None)
        except _ApiError as error:
            if error.err_code == _NO_STREAM:
                return None
            raise

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, agent: str, message: EventMessage) -> asyncio.Future[int]:
        """Sends it (by reference when it is too large for a message), in the order of the calls; the future gets its seq in
        the stream when the server has it, also when it had it before. It fails with Disconnected, StreamMissing,
        StreamError, TimeoutError (10 s): whether it arrived is not known then, `ensure` and sending it again are safe.
        While somebody else listens to the subject a missing stream shows only as that timeout."""
        event = message.event
        headers = {**event_headers(event), "Nats-Expected-Stream": self._names.stream}
        data = encode_event(message, self._connection.max_bytes)
        answer = await self._connection.ask(self._names.turns(agent, event.turn), data, headers=headers)
        acknowledged = asyncio.ensure_future(_acknowledged(answer))
        acknowledged.add_done_callback(seen)
        return acknowledged

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, after: int) -> AsyncIterator[Sequence[Stored]]:
        """What this namespace has after a seq of the stream, oldest first, in batches, until caught up. Malformed messages
        are logged and passed over. Raises Disconnected, StreamMissing, StreamError."""
        heard: asyncio.Queue[Message | None] = asyncio.Queue()
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(
            f"{inbox}.*", heard.put_nowait, on_loss=lambda: heard.put_nowait(None)
        )
        try:
            consumer = await self._consumer(after)
            for number in itertools.count():
                reply = f"{inbox}.{number}"
                await self._pull(consumer, reply)
                batch, more = await _pulled(heard, reply)
                if batch:
                    yield [each for message in batch if (each := self._stored(message, _seq_of(message)))]
                if not more:
                    return
        finally:
            await subscription.leave()

    async def _pull(self, consumer: str, reply: str) -> None:
        size = max(BATCH_BYTES, 2 * self._connection.max_bytes)
        subject = f"{_API}.CONSUMER.MSG.NEXT.{self._names.stream}.{consumer}"
        await self._connection.publish(
            subject, encode({"batch": BATCH, "no_wait": True, "max_bytes": size}), reply=reply
        )

    async def _consumer(self, after: int) -> str:
        """Ephemeral: gone by itself when nobody reads from it."""
        name, stream, subjects = secrets.token_hex(8), self._names.stream, self._names.all_turns
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subject": subjects,
            "inactive_threshold": int(IDLE_CONSUMER_SECONDS * _SECOND),
            "mem_storage": True,
            "num_replicas": 1,
        }
        await self._api(
            f"CONSUMER.CREATE.{stream}.{name}.{subjects}", {"stream_name": stream, "config": config, "action": "create"}
        )
        return name

    def _stored(self, message: Message, seq: int) -> Stored | None:
        try:
            address = self._names.parse(message.subject)
            if address is None:
                raise Malformed("it is on a subject of nobody")
            event = decode_event(message.data)
            if event.event.turn != address.turn:
                raise Malformed("its turn is not that of its subject")
        except Malformed as error:
            log.warning("a stored message cannot be read", subject=message.subject, seq=seq, problem=str(error))
            return None
        return Stored(seq, address, event)

    # -- JetStream's API ----------------------------------------------------------------------------------------------

    async def _api(self, verb: str, body: Any) -> Mapping[str, Any]:
        answer = await self._asked(f"{_API}.{verb}", b"" if body is None else encode(body))
        document = _document(answer)
        if "error" in document:
            raise _ApiError.told(document["error"])
        return document

    async def _asked(self, subject: str, data: bytes) -> Message:
        try:
            return await asyncio.wait_for(await self._connection.ask(subject, data), API_SECONDS)
        except NoResponders as error:
            raise StreamMissing(
                "This NATS server has no JetStream for these credentials: set `jetstream { … }` in its configuration."
            ) from error
        except NotPermitted as error:
            raise StreamError(str(error)) from error
        except TimeoutError as error:
            raise StreamError(f"JetStream did not answer within {API_SECONDS:g} s.") from error


class _ApiError(StreamError):
    def __init__(self, text: str, err_code: int) -> None:
        super().__init__(text)
        self.err_code = err_code

    @classmethod
    def told(cls, error: Any) -> _ApiError:
        said = error if isinstance(error, Mapping) else {}
        code = said.get("err_code", 0)
        return cls(f"JetStream: {said.get('description', 'no reason given')} ({code}).", int(code))


def _document(answer: Message) -> Mapping[str, Any]:
    try:
        document = decode(answer.data)
    except Malformed as error:
        raise StreamError(f"JetStream's answer is {error}.") from error
    if not isinstance(document, dict):
        raise StreamError("JetStream's answer is no object.")
    return document


async def _acknowledged(answer: asyncio.Future[Message]) -> int:
    try:
        document = _document(await asyncio.wait_for(answer, ACK_SECONDS))
    except NoResponders as error:
        raise StreamMissing("There is no stream for the events, or no JetStream.") from error
    except NotPermitted as error:
        raise StreamError(str(error)) from error
    if "error" in document:
        raise _ApiError.told(document["error"])
    return int(document["seq"])


async def _pulled(heard: asyncio.Queue[Message | None], reply: str) -> tuple[list[Message], bool]:
    """One batch, and whether there is more."""
    batch: list[Message] = []
    while len(batch) < BATCH:
        try:
            message = await asyncio.wait_for(heard.get(), API_SECONDS)
        except TimeoutError as error:
            raise StreamError(f"JetStream did not answer within {API_SECONDS:g} s.") from error
        if message is None:
            raise Disconnected("The connection to NATS was lost while the stream was read.")
        if message.status is None:
            batch.append(message)
            if _pending_after(message) == 0:
                return batch, False
        elif message.subject != reply:
            continue  # how the pull before this one ended
        elif message.status == "404":
            return batch, False
        elif batch:
            return batch, True
        else:
            raise StreamError(f"JetStream: {message.headers.get('Description')} ({message.status}).")
    return batch, True


def _seq_of(message: Message) -> int:
    return int(_delivery(message)[-4])


def _pending_after(message: Message) -> int:
    return int(_delivery(message)[-1])


def _delivery(message: Message) -> list[str]:
    """Of the reply subject, `$JS.ACK.….<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`; a
    server of a later kind may put a word before the end, with twelve words in all."""
    words = message.reply.split(".")
    return words[:-1] if len(words) == 12 else words
