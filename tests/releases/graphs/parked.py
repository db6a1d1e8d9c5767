"""Two questions at once, then an answer that quotes both: parks until a person has answered each."""

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt


def both(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    return {**left, **right}


class Answers(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    answers: Annotated[dict[str, str], both]


def ask(side: str) -> dict[str, Any]:
    return {"answers": {side: interrupt({"question": f"What is on the {side}?", "side": side})}}


def ask_left(state: Answers) -> dict[str, Any]:
    return ask("left")


def ask_right(state: Answers) -> dict[str, Any]:
    return ask("right")


def tell(state: Answers) -> dict[str, Any]:
    answers = state["answers"]
    return {"messages": [AIMessage(f"On the left {answers['left']}, on the right {answers['right']}.")]}


graph = StateGraph(Answers)
graph.add_node("ask_left", ask_left).add_node("ask_right", ask_right).add_node("tell", tell)
graph.add_edge(START, "ask_left").add_edge(START, "ask_right").add_edge(["ask_left", "ask_right"], "tell")
