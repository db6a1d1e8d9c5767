"""One model call: streamed, ended when the model falls silent, and repeated while its errors may pass by themselves.

A repeated call is a new message with an id of its own; the text streamed before is replaced by nothing and vanishes
when the turn ends. A model that falls silent is not asked again: the same silence would cost the same time once more,
and a person's resume does it better (`model_idle`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig

from perdure import ledger
from perdure.clock import Clock
from perdure.failpoints import failpoint
from perdure.graph.errors import GraphFailure, LimitReached, ModelRefused, ModelStalled, ModelUnavailable
from perdure.graph.limits import LimitExpired, TimeLimit
from perdure.graph.models import ModelSource
from perdure.graph.replies import joined, settled
from perdure.graph.retry import Transient, UnfinishedReply, classify, next_delay
from perdure.graph.tools import BoundTool

Model = Runnable[LanguageModelInput, AIMessage]

_END_MARKS: Mapping[str, str] = {"openai": "finish_reason", "anthropic": "stop_reason", "ollama": "done"}
"""What the last piece of a whole answer carries. A stream cut between two pieces looks like an end otherwise."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    source: ModelSource
    clock: Clock
    retry_seconds: float
    idle_seconds: float

    async def reply(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[BoundTool],
        config: RunnableConfig,
        taken_ids: Collection[str],
    ) -> AIMessage:
        """The model's answer, its id not in `taken_ids`. Raises ModelUnavailable, ModelStalled, ModelRefused,
        ModelNotConfigured, LimitReached."""
        try:
            model = self._with_tools(await self.source.get(), tools)
            reply = settled(await self._persist(model, messages, config), taken_ids)
        except LimitReached:  # the turn's, of which the model knows nothing
            raise
        except GraphFailure as failure:
            self.source.failed(failure.message)
            raise
        self.source.succeeded()
        return reply

    def _with_tools(self, model: BaseChatModel, tools: Sequence[BoundTool]) -> Model:
        if not tools:
            return model
        try:
            return model.bind_tools([each.tool for each in tools])
        except NotImplementedError as error:
            raise ModelRefused(
                f"The model `{self.source.name}` cannot call tools. Choose another one, or an agent without tools."
            ) from error

    async def _persist(self, model: Model, messages: Sequence[BaseMessage], config: RunnableConfig) -> AIMessage:
        failures = 0
        first_failure: float | None = None
        while True:
            failpoint("model_call.before")
            try:
                reply = await self._once(model, messages, config)
            except GraphFailure:
                raise
            except Exception as error:  # whatever a provider's client raises
                failures += 1
                now = self.clock.monotonic()
                first_failure = now if first_failure is None else first_failure
                await self._wait_after(error, failures, now - first_failure)
            else:
                failpoint("model_call.after")
                return reply

    async def _once(self, model: Model, messages: Sequence[BaseMessage], config: RunnableConfig) -> AIMessage:
        pieces: list[BaseMessage] = []
        try:
            async with TimeLimit(self.clock, self.idle_seconds) as silence:
                async for piece in model.astream(list(messages), config):
                    silence.touch()
                    pieces.append(piece)
        except LimitExpired as error:
            raise ModelStalled(
                f"The model `{self.source.name}` sent nothing for {self.idle_seconds:g} seconds and was given up. "
                "Resume the turn to ask it again; `model_idle_timeout_seconds` sets the limit."
            ) from error
        reply = _whole(pieces)
        mark = _END_MARKS.get(self.source.provider)
        if mark and not reply.response_metadata.get(mark):
            raise UnfinishedReply("the answer was cut off before the model said that it was done")
        return reply

    async def _wait_after(self, error: Exception, failures: int, elapsed: float) -> None:
        """Waits before the next call, or raises the failure that ends the turn."""
        judgement = classify(error, self.clock.now())
        jitter = random.random()  # noqa: S311
        delay = next_delay(judgement, failures, elapsed, self.retry_seconds, jitter)
        text = _provider_text(error)
        if delay is None:
            raise self._given_up(judgement, text, failures, elapsed) from error
        attempt = ledger.current.get()
        if attempt is not None:
            attempt.note("model", self.source.name, "retry", {"error": text, "delay_seconds": round(delay, 3)})
        await self.clock.sleep(delay)

    def _given_up(self, judgement: Any, text: str, failures: int, elapsed: float) -> GraphFailure:
        if not isinstance(judgement, Transient):
            return ModelRefused(f"The model `{self.source.name}` refused the call: {text}")
        calls = "once" if failures == 1 else f"{failures} times in {elapsed:.0f} seconds"
        asked = judgement.retry_after_seconds
        later = f" Its server asks to wait {asked:.0f} seconds." if asked else ""
        return ModelUnavailable(
            f"The model `{self.source.name}` could not be reached (asked {calls}): {text}.{later} "
            "Nothing is lost: resume the turn when the model is back."
        )


def _whole(pieces: Sequence[BaseMessage]) -> AIMessage:
    chunks = [each for each in pieces if isinstance(each, AIMessageChunk)]
    if chunks:
        return joined(chunks)
    # A model that does not stream gives its message in one piece.
    whole = next((each for each in pieces if isinstance(each, AIMessage)), None)
    if whole is None:
        raise UnfinishedReply("the model sent nothing")
    return whole


def _provider_text(error: Exception) -> str:
    """What the provider said, on one line, without a stack trace."""
    text = " ".join(str(error).split()) or type(error).__name__
    cause = error.__cause__
    detail = f" ({' '.join(str(cause).split())})" if cause is not None and len(text) < 40 and str(cause) else ""
    return (text.rstrip(".") + detail)[:1000]
