"""The named queries over the rows of checkpoints, writes, lists and items: what a thread's rows are read, shared and removed
with. What the bytes in them mean is `encoding`'s matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from perdure.store.sqlite.queries import Queries

QUERIES = Queries(Path(__file__).with_name("checkpoint_queries.sql"))


def rows_of(connection: apsw.Connection, query: str, **bindings: Any) -> list[tuple[Any, ...]]:
    """All rows of a named query."""
    return connection.execute(QUERIES[query], bindings).fetchall()
