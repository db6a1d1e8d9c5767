"""A LangGraph graph of your own: Perdure serves it unchanged, with its own checkpointer in place."""

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph


async def shout(state: MessagesState) -> dict[str, list[AIMessage]]:
    return {"messages": [AIMessage(str(state["messages"][-1].content).upper())]}


graph = StateGraph(MessagesState).add_node("shout", shout).add_edge(START, "shout").compile()
