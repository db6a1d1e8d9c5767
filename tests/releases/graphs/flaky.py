"""Fails while BROKEN_ON_PURPOSE is set in its process: the failed turn of a release's database."""

import os

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph


async def answer(state: MessagesState) -> dict[str, list[AIMessage]]:
    if "BROKEN_ON_PURPOSE" in os.environ:
        raise RuntimeError("broken on purpose")
    return {"messages": [AIMessage("mended", id=f"answer-{len(state['messages'])}")]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
