"""A chat model that does what the last human message says, and refuses every history that a real provider refuses.

`do once:a,keyed:b | read:c` is two answers: one with two parallel calls, then one with a single call; then the model says
`Done.` Any other message is answered with `Heard: …`. Calls are numbered from `call_0` in every answer, as some servers do. What
it says follows from the history alone, so another attempt goes on where the last one stopped.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, message_chunk_to_message
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from perdure.graph import models
from tests.strict import refuse

NAME = "scripted"
COMMAND = "do "
DONE = "Done."

TOOLS = {
    "read": "look",
    "keyed": "save",
    "checkable": "book",
    "once": "charge",
    "gated": "restart",
    "broken": "break_down",
}
"""The word of a script → the tool it calls (`graphs/effects.py`)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One call of a script."""

    word: str
    label: str

    @property
    def tool(self) -> str:
        return TOOLS[self.word]


def parse_script(text: str) -> list[list[Planned]]:
    """The answers that a message asks for, each a list of parallel calls."""
    if not text.startswith(COMMAND):
        return []
    steps = [step.strip() for step in text.removeprefix(COMMAND).split("|")]
    return [[Planned(*each.strip().split(":")) for each in step.split(",")] for step in steps if step]


def write_script(steps: Sequence[Sequence[tuple[str, str]]]) -> str:
    return COMMAND + " | ".join(",".join(f"{word}:{label}" for word, label in step) for step in steps)


class ScriptedModel(BaseChatModel):
    """Streams. `pause_seconds` is the time a piece takes."""

    pause_seconds: float = 0.002

    @property
    def _llm_type(self) -> str:
        return NAME

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        whole = message_chunk_to_message(reduce(operator.add, _pieces(messages)))
        return ChatResult(generations=[ChatGeneration(message=whole)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in _pieces(messages):
            await asyncio.sleep(self.pause_seconds)
            yield ChatGenerationChunk(message=piece)


def _pieces(messages: Sequence[BaseMessage]) -> list[AIMessageChunk]:
    """Raises HistoryRefused."""
    refuse(messages)
    start = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    text = str(messages[start].content)
    steps = parse_script(text)
    done = sum(1 for message in messages[start:] if isinstance(message, AIMessage) and message.tool_calls)
    if done < len(steps):
        calls = [
            tool_call_chunk(
                name=planned.tool, args=json.dumps({"label": planned.label}), id=f"call_{place}", index=place
            )
            for place, planned in enumerate(steps[done])
        ]
        return [AIMessageChunk(content="Working. "), AIMessageChunk(content="", tool_call_chunks=calls)]
    words = DONE if steps else f"Heard: {text}"
    return [AIMessageChunk(content=word) for word in words.split(" ")] if steps else [AIMessageChunk(content=words)]


def install() -> None:
    """Makes the model known to this process as the model `scripted` of a built-in agent."""
    create = models._create

    def made(name: str, provider: str, base_url: str | None) -> BaseChatModel:
        return ScriptedModel() if name == NAME else create(name, provider, base_url)

    setattr(models, "_create", made)  # noqa: B010
