"""The other side of every pair: stock LangGraph with its own SQLite saver, as careful with the disk as Perdure is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.state import StateGraph


class Stock:
    """One compiled graph over `AsyncSqliteSaver`, WAL, `synchronous=FULL`, `durability="sync"`."""

    def __init__(self, graph: Any, saver: AsyncSqliteSaver, path: Path) -> None:
        self._graph = graph
        self._saver = saver
        self.path = path

    async def turn(self, thread: str, text: str) -> None:
        config = {"configurable": {"thread_id": thread}}
        await self._graph.ainvoke({"messages": [HumanMessage(text)]}, config, durability="sync")

    async def settle(self) -> None:
        """Copies the WAL into the file, so that the file's size is the database's size."""
        async with self._saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)") as cursor:
            await cursor.fetchall()

    def size(self) -> int:
        return self.path.stat().st_size


@asynccontextmanager
async def open_stock(path: Path, graph: StateGraph[Any, Any, Any, Any]) -> AsyncIterator[Stock]:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=FULL")
        yield Stock(graph.compile(checkpointer=saver), saver, path)
