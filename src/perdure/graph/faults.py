"""Faults of a configuration, gathered: who mends one should not meet the next only at the next start."""

from __future__ import annotations

from types import TracebackType

from perdure.errors import ConfigurationError


class Faults:
    """`with faults:` keeps a ConfigurationError and goes on after the block; `refuse` raises all that were kept as one."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ConfigurationError):
            self._problems.extend(error.problems)
            return True
        return False

    def refuse(self) -> None:
        if self._problems:
            raise ConfigurationError(self._problems)
