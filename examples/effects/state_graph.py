"""A StateGraph of your own. `ToolNode` is `perdure`'s instead of `langgraph.prebuilt`'s; nothing else is different."""

from typing import Any

from langchain.chat_models import init_chat_model
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from shop import tools

from perdure import ToolNode

model = init_chat_model("openai:gpt-5-mini").bind_tools(tools)


async def think(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode(tools))
graph.add_edge(START, "think").add_conditional_edges("think", tools_condition).add_edge("tools", "think")
