"""A table of a project file, read key by key: what is wrong is collected with the place where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.settings.values import Reader, did_you_mean

Schema = Mapping[str, Reader]


class Table:
    """`where` begins every problem (`perdure.toml: [deploy]`). Relative paths start from `base`."""

    def __init__(self, where: str, raw: Any, base: Path, problems: list[str]) -> None:
        self._where, self._base, self._problems = where, base, problems
        self._content: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        if raw is not None and not isinstance(raw, Mapping):
            self.problem("must be a table")

    def problem(self, what: str) -> None:
        self._problems.append(f"{self._where} {what}.")

    def has(self, key: str) -> bool:
        return key in self._content

    def read(self, schema: Schema, tables: Sequence[str] = ()) -> dict[str, Any]:
        """The values of known keys that are valid; `tables` are read by `inner` and `each`."""
        found = {}
        for key, raw in self._content.items():
            if key in tables:
                continue
            if key not in schema:
                self._problems.append(f"{self._where}: unknown key `{key}`.{did_you_mean(key, (*schema, *tables))}")
                continue
            try:
                found[key] = schema[key](raw, self._base)
            except ValueError as error:
                self._problems.append(f"{self._where}: `{key}` {error}.")
        return found

    def inner(self, key: str) -> Table:
        return Table(f"{self._where[:-1]}.{key}]", self._content.get(key), self._base, self._problems)

    def each(self, key: str) -> Iterator[tuple[str, Table]]:
        """The tables of a table of tables, by name."""
        outer = self.inner(key)
        for name in outer._content:
            yield name, outer.inner(name)
