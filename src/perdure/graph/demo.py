"""The demo model: a real chat model that streams, calls tools, and needs no key, network or package.

What it says depends on the last human message and on what follows it in the history alone, so a second attempt goes on
where the first one stopped. Its tools are in `demo_tools`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from perdure.messages import text_of

FOUR_STEPS = ("one", "two", "three", "four")
THREE_AT_ONCE = ("alpha", "beta", "gamma")


@dataclass(frozen=True, slots=True)
class _Reply:
    """What the model says next: a text, or calls of tools as (name, arguments)."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The last human message and what was called and answered after it."""

    message: str
    called: tuple[tuple[str, dict[str, Any]], ...]
    results: tuple[ToolMessage, ...]


def decide(messages: Sequence[BaseMessage]) -> _Reply:
    exchange = _last_exchange(messages)
    for prefix, reply in _COMMANDS:
        if exchange.message.startswith(prefix):
            return reply(exchange)
    lowered = exchange.message.lower()
    for phrase, reply in _PHRASES:
        if phrase in lowered:
            return reply(exchange)
    return _explain(exchange)


def _last_exchange(messages: Sequence[BaseMessage]) -> _Exchange:
    start = max((n for n, message in enumerate(messages) if isinstance(message, HumanMessage)), default=None)
    if start is None:
        return _Exchange("", (), ())
    after = messages[start + 1 :]
    called = [(call["name"], call["args"]) for each in after if isinstance(each, AIMessage) for call in each.tool_calls]
    results = [each for each in after if isinstance(each, ToolMessage)]
    return _Exchange(text_of(messages[start]), tuple(called), tuple(results))


def _four_steps(exchange: _Exchange) -> _Reply:
    done = {arguments.get("label") for name, arguments in exchange.called if name == "slow_step"}
    for label in FOUR_STEPS:
        if label not in done:
            return _Reply(calls=(("slow_step", {"label": label}),))
    return _Reply("All four steps are done: one, two, three, four.")


def _three_at_once(exchange: _Exchange) -> _Reply:
    if not exchange.called:
        return _Reply(calls=tuple(("slow_step", {"label": label}) for label in THREE_AT_ONCE))
    return _Reply("All three are done: alpha, beta, gamma.")


def _say(exchange: _Exchange) -> _Reply:
    return _Reply(exchange.message.removeprefix("/say "))


def _fail(exchange: _Exchange) -> _Reply:
    if not exchange.results:
        return _Reply(calls=(("fail", {}),))
    return _Reply(f'The tool answered with an error: "{text_of(exchange.results[-1])}"')


def _crash(exchange: _Exchange) -> _Reply:
    if not exchange.results:
        return _Reply(calls=(("crash", {}),))
    return _Reply(f'The process was to exit, yet the tool answered: "{text_of(exchange.results[-1])}"')


def _loop(exchange: _Exchange) -> _Reply:
    ticks = sum(1 for name, _ in exchange.called if name == "tick")
    return _Reply(calls=(("tick", {"n": ticks + 1}),))


def _call(exchange: _Exchange) -> _Reply:
    """`/call TOOL {"argument": 1}`, one a line: calls of any tools of the agent, one's own included, at once."""
    if exchange.results:
        return _Reply("\n".join(f'{each.name} answered: "{text_of(each)}"' for each in exchange.results))
    lines = [line.partition(" ")[2].strip().partition(" ") for line in exchange.message.splitlines() if line.strip()]
    try:
        calls = tuple((name, dict(json.loads(arguments or "{}"))) for name, _, arguments in lines)
    except (ValueError, TypeError):
        return _Reply('I call a tool when told so with JSON: /call TOOL {"argument": 1}')
    return _Reply(calls=calls)


def _restart(exchange: _Exchange) -> _Reply:
    return _called_once(exchange, ("restart_service", {"name": "web"}))


def _two_services(exchange: _Exchange) -> _Reply:
    services = [("restart_service", {"name": name}) for name in ("web", "db")]
    return _called_once(exchange, *services, ("read_status", {}))


def _charge(exchange: _Exchange) -> _Reply:
    return _called_once(exchange, ("charge_card", {"amount": 5}))


def _note(exchange: _Exchange) -> _Reply:
    return _called_once(exchange, ("save_note", {"text": exchange.message}))


def _called_once(exchange: _Exchange, *calls: tuple[str, dict[str, Any]]) -> _Reply:
    """Makes the calls in one turn of the model, then tells what they answered."""
    if not exchange.called:
        return _Reply(calls=calls)
    return _Reply("\n".join(text_of(each) for each in exchange.results))


def _explain(exchange: _Exchange) -> _Reply:
    return _Reply(
        f'You said: "{exchange.message}". I am the built-in demo model and only repeat. For a real one, set '
        "PERDURE_MODEL to a name like ollama:llama3.2, openai:gpt-5.5 or anthropic:claude-sonnet-4-5 and start again."
    )


_COMMANDS: tuple[tuple[str, Callable[[_Exchange], _Reply]], ...] = (
    ("/say ", _say),
    ("/fail", _fail),
    ("/crash", _crash),
    ("/loop", _loop),
    ("/call ", _call),
)
_PHRASES: tuple[tuple[str, Callable[[_Exchange], _Reply]], ...] = (
    ("four-step job", _four_steps),
    ("three at once", _three_at_once),
    ("restart the service", _restart),
    ("two services", _two_services),
    ("charge the card", _charge),
    ("note it", _note),
)


class DemoModel(BaseChatModel):
    """`PERDURE_DEMO_TOKEN_SECONDS` (0.02) is the time one word takes; read at every call."""

    @property
    def _llm_type(self) -> str:
        return "perdure-demo"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = decide(messages)
        message_id, names = _new_ids(len(reply.calls))
        calls = [
            {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}
            for (name, arguments), call_id in zip(reply.calls, names, strict=True)
        ]
        time.sleep(_token_seconds() * len(_words(reply.text)))
        message = AIMessage(content=reply.text, tool_calls=calls, id=message_id, usage_metadata=_usage(messages, reply))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        seconds = _token_seconds()
        for chunk in _chunks(messages, decide(messages)):
            await asyncio.sleep(seconds)
            yield ChatGenerationChunk(message=chunk)


def _chunks(messages: Sequence[BaseMessage], reply: _Reply) -> Iterator[AIMessageChunk]:
    message_id, call_ids = _new_ids(len(reply.calls))
    for word in _words(reply.text):
        yield AIMessageChunk(content=word, id=message_id)
    for index, ((name, arguments), call_id) in enumerate(zip(reply.calls, call_ids, strict=True)):
        piece = tool_call_chunk(name=name, args=json.dumps(arguments), id=call_id, index=index)
        yield AIMessageChunk(content="", tool_call_chunks=[piece], id=message_id)
    yield AIMessageChunk(content="", id=message_id, usage_metadata=_usage(messages, reply), chunk_position="last")


def _new_ids(calls: int) -> tuple[str, list[str]]:
    """A fresh id for the message and for each of its calls: a model that is asked again says something new."""
    stem = uuid.uuid4().hex
    return f"demo-{stem}", [f"call_{stem[:24]}_{index}" for index in range(calls)]


def _words(text: str) -> list[str]:
    """Pieces that joined give the text exactly."""
    return re.findall(r"\S+\s*|^\s+", text)


def _usage(messages: Sequence[BaseMessage], reply: _Reply) -> UsageMetadata:
    """Words stand for tokens."""
    received = sum(len(text_of(message).split()) for message in messages)
    sent = len(reply.text.split()) + sum(1 + len(arguments) for _, arguments in reply.calls)
    return UsageMetadata(input_tokens=received, output_tokens=sent, total_tokens=received + sent)


def _token_seconds() -> float:
    return float(os.environ.get("PERDURE_DEMO_TOKEN_SECONDS", "0.02"))
