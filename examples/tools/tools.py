"""Python tools: any function with types and a docstring. It may be executed again after a crash in mid-call."""

from datetime import date


def days_between(first: str, second: str) -> int:
    """Number of days from the first ISO date to the second."""
    return (date.fromisoformat(second) - date.fromisoformat(first)).days
