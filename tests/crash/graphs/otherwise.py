"""Asks A; once it has the answer it dies (or fails, when the message says so), and from then on it asks B instead.

`PERDURE_DEMO_EFFECTS` with `.asked` behind it remembers that A was answered.
"""

import os
import signal
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def ask(state: MessagesState) -> dict[str, Any]:
    asked = Path(os.environ["PERDURE_DEMO_EFFECTS"] + ".asked")
    side = "B" if asked.exists() else "A"
    answer = interrupt({"question": f"What is {side}?", "side": side})
    if side == "A":
        asked.touch()
        if state["messages"][-1].content == "fail":
            raise RuntimeError("broken after the answer")
        os.kill(os.getpid(), signal.SIGKILL)
    return {"messages": [AIMessage(f"{side}: {answer}")]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask).add_edge(START, "ask")
