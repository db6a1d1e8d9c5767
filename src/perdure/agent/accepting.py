"""A server that stops takes nothing more."""

from __future__ import annotations

from perdure.errors import NotReady

STOPPING = "This server is shutting down."


def check_accepting(draining: bool) -> None:
    """What it accepted now would wait for the next one without a word. Raises NotReady."""
    if draining:
        raise NotReady(f"{STOPPING} Nothing was accepted; send it again in a moment, with the same Idempotency-Key.")
