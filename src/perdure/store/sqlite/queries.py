"""Loads the named queries of a `.sql` file.

    -- name --
    -- What it does, in plain words.
    SELECT …

A name without a description or a statement, and a name met twice, are refused when the file is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

_NAME = re.compile(r"^-- ([a-z][a-z0-9_]*) --$")


class Queries:
    """The queries of one file by name: `queries["claim_next"]`. A missing name is a KeyError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._statements = dict(_parsed(path))

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def all(self, connection: apsw.Connection, name: str, /, **bindings: Any) -> list[dict[str, Any]]:
        """Every row, as column name → value."""
        cursor = connection.execute(self._statements[name], bindings)
        rows: list[dict[str, Any]] = []
        columns: list[str] = []
        for row in cursor:
            if not columns:
                columns = [column[0] for column in cursor.get_description()]
            rows.append(dict(zip(columns, row, strict=True)))
        return rows

    def one(self, connection: apsw.Connection, name: str, /, **bindings: Any) -> Mapping[str, Any] | None:
        """The first row, None when there is none."""
        rows = self.all(connection, name, **bindings)
        return rows[0] if rows else None

    def run(self, connection: apsw.Connection, name: str, /, **bindings: Any) -> int:
        """Executes a statement; the number of rows it changed."""
        connection.execute(self._statements[name], bindings)
        return connection.changes()


def _parsed(path: Path) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, lines in _sections(path):
        description = [line for line in lines if line.startswith("-- ")]
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if name in seen:
            raise ValueError(f"{path.name}: the query {name!r} stands there twice")
        if not description or not statement:
            raise ValueError(f"{path.name}: the query {name!r} needs a description and a statement")
        seen.add(name)
        yield name, statement


def _sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        heading = _NAME.match(line)
        if heading is None:
            lines.append(line)
            continue
        if name:
            yield name, lines
        name, lines = heading[1], []
    if name:
        yield name, lines
