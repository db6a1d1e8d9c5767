"""What an exception that ended a drive means for the turn: code, reason and words for people. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph.errors import EmptyInputError

from perdure.errors import PerdureError, StateTypeNotAllowed
from perdure.graph.errors import GraphFailure, LimitReached
from perdure.turns import Failure, FailureCode

TOOLS_NODE = "tools"
MESSAGE_CHARACTERS = 1000


def failure_of(error: BaseException, node: str | None) -> Failure:
    """`node`: the node the error escaped from, None when it did not come from one."""
    if isinstance(error, GraphFailure):
        return error.failure
    if isinstance(error, StateTypeNotAllowed):
        return Failure(FailureCode.STATE_TYPE_NOT_ALLOWED, "state_type_not_allowed", error.message)
    if isinstance(error, EmptyInputError):
        return Failure(
            FailureCode.AGENT_FAILURE, "empty_input", "The graph takes nothing of this input: check its keys."
        )
    if node == TOOLS_NODE:
        return Failure(FailureCode.TOOL_FAILURE, "tool_failed", f"A tool ended the turn: {_words(error)}")
    place = f"The node {node!r} failed" if node else "The agent failed"
    return Failure(FailureCode.AGENT_FAILURE, "node_failed" if node else "agent_failed", f"{place}: {_words(error)}")


def state_rejected(fault: Exception, nodes: Sequence[str]) -> Failure:
    """`nodes`: those of the step that the thread stands at."""
    step = f"the step {', '.join(dict.fromkeys(nodes))}" if nodes else "its last step"
    return Failure(
        FailureCode.AGENT_FAILURE,
        "state_rejected",
        f"The graph's state does not take a value at {step}: {_words(fault)}. Send a new message: it goes on without it.",
    )


def same(error: BaseException, other: BaseException) -> bool:
    return type(error) is type(other) and _words(error) == _words(other)


def recursion_limit(used: int, limit: int) -> Failure:
    return Failure(
        FailureCode.RECURSION_LIMIT,
        "recursion_limit",
        f"The turn used {used} steps; its limit is {limit} (setting recursion_limit). Continue gives it {limit} more.",
    )


def subgraph_recursion_limit(limit: int) -> Failure:
    return Failure(
        FailureCode.RECURSION_LIMIT,
        "subgraph_recursion_limit",
        f"A part of the graph took more than {limit} steps (setting recursion_limit). Continue lets it take {limit} more.",
    )


def model_call_limit(limit: int) -> LimitReached:
    return LimitReached("model_call_limit", f"The turn made {limit} model calls, its limit. {_more('max_model_calls')}")


def tool_call_limit(limit: int) -> LimitReached:
    return LimitReached("tool_call_limit", f"The turn made {limit} tool calls, its limit. {_more('max_tool_calls')}")


def identical_call_limit(tool: str, limit: int) -> LimitReached:
    return LimitReached(
        "identical_call_limit",
        f"The tool `{tool}` was called {limit} times in a row with the same arguments: the agent goes round in circles. "
        f"{_more('max_identical_calls')} A tool that is meant to be asked again and again belongs in the setting poll.",
    )


def token_limit(limit: int) -> LimitReached:
    return LimitReached("token_limit", f"The turn used up its {limit} tokens. {_more('max_tokens')}")


def time_limit(seconds: float) -> Failure:
    return LimitReached(
        "time_limit", f"The turn was worked on for {seconds:g} seconds, its limit. {_more('max_turn_seconds')}"
    ).failure


def _more(setting: str) -> str:
    return f"Resume the turn to give it as much again, or raise the setting {setting}."


def question_repeated() -> Failure:
    return Failure(
        FailureCode.AGENT_FAILURE,
        "question_repeated",
        "The graph asked a question again that was answered already, so no answer can move it on. Send a new message.",
    )


def _words(error: BaseException) -> str:
    """Class and message; the traceback goes to the log alone."""
    name = type(error).__name__
    try:
        message = error.message if isinstance(error, PerdureError) else str(error)
    except Exception:  # a class of the graph's own, whose text cannot be made
        message = ""
    text = f"{name}: {message}" if message else name
    return text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 1] + "…"
