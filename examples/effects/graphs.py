"""Two tools in a `StateGraph` and in LangChain's `create_agent`: one name of `perdure` covers the calls of each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

import perdure


def happen(what: str) -> str:
    with Path("shop.jsonl").open("a") as world:
        world.write(json.dumps({"what": what, "key": perdure.call_key()}) + "\n")
    return what


@perdure.effect("keyed")
def leave_note(text: str) -> str:
    """Leaves a note."""
    return happen(f"Note: {text}")


def refund(order: int, amount: float) -> str:
    """Pays money back."""
    return happen(f"Paid back: {amount} for order {order}")


tools: list[Callable[..., Any]] = [leave_note, refund]
model = init_chat_model("openai:gpt-5-mini")


async def think(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.bind_tools(tools).ainvoke(state["messages"])]}


# perdure's ToolNode instead of langgraph.prebuilt's, with the same arguments.
graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", perdure.ToolNode(tools))
graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")

# The middleware stands first.
agent = create_agent(model, tools, middleware=[perdure.DurableToolsMiddleware()])
