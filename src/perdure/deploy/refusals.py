"""What Docker says when it refuses, in words that say what to do."""

from __future__ import annotations

import re

_PORT_TAKEN = re.compile(r"address already in use|port is already allocated|ports are not available")
_ADDRESS = re.compile(r"(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):\d+")


def refusal(message: str) -> str:
    said = message.strip()
    if _PORT_TAKEN.search(said):
        address = _ADDRESS.search(said)
        return (
            f"{address[0] if address else 'The port'} is in use on the engine's machine. End what listens there, or give "
            "[deploy.gateway] another `port`; then apply again."
        )
    return f"Docker refused: {said}"
