"""A graph that asks a person before it acts. The question survives restarts; nothing runs until it is answered."""

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt


class Order(TypedDict, total=False):
    item: str
    approved: bool
    receipt: str


def ask(state: Order) -> dict[str, Any]:
    # Nothing with an effect may stand before interrupt(): the node starts again from its top when it is answered.
    return {"approved": interrupt({"question": f"Order one {state['item']}?"}) == "yes"}


def order(state: Order) -> dict[str, Any]:
    return {"receipt": f"ordered: {state['item']}" if state["approved"] else "not ordered"}


graph = StateGraph(Order).add_node("ask", ask).add_node("order", order)
graph.add_edge(START, "ask").add_edge("ask", "order")
