"""Python tools: any function with types and a docstring."""

from datetime import date

import perdure


@perdure.effect("read")  # changes nothing: cut by a crash, it just runs again. Without it a person would be asked.
def days_between(first: str, second: str) -> int:
    """Number of days from the first ISO date to the second."""
    return (date.fromisoformat(second) - date.fromisoformat(first)).days
