"""What Docker says when it refuses, in words that say what to do."""

from __future__ import annotations

import re

_PORT_TAKEN = re.compile(r"address already in use|port is already allocated|ports are not available")
_ADDRESS = re.compile(r"(?:\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):\d+")


_VIA = re.compile(r"Cannot connect to Docker Engine via (\S+) ")
_INNERMOST = re.compile(r"\[([^\[\]]+)\]+$")
_UNREACHABLE = "The Docker engine does not answer ({why}). Start it, let this user reach its socket, or name another one with DOCKER_HOST."


def refusal(message: str) -> str:
    said = message.strip()
    if _PORT_TAKEN.search(said):
        address = _ADDRESS.search(said)
        return (
            f"{address[0] if address else 'The port'} is in use on the engine's machine. End what listens there, or give "
            "[deploy.gateway] another `port`; then apply again."
        )
    return f"Docker refused: {said}"


def unreachable(message: str) -> str:
    """The client's words are nested: where it looked is kept, and what the system said there."""
    via, why = _VIA.match(message), _INNERMOST.search(message)
    if via is None or why is None:
        return _UNREACHABLE.format(why=message)
    said = "nothing listens there" if why[1].startswith("Connect call failed") else why[1]
    return _UNREACHABLE.format(why=f"{via[1]}: {said}")
