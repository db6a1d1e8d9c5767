"""The listening socket, and who has the port when it is taken."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from perdure.errors import ConfigurationError

BACKLOG = 2048
_LISTENING = "0A"


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket. Raises ConfigurationError that says who has the port and what to do."""
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigurationError(f"`host` {host} is not an address of this machine ({error.strerror}).") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigurationError(_refusal(host, port, error)) from error
    return bound


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return taken(port)
    if error.errno == errno.EACCES:
        return f"Port {port} needs privileges; take one above 1023: --port 8700"
    return f"Cannot listen on {host} port {port}: {error.strerror}."


def taken(port: int) -> str:
    """The sentence for a port that somebody else has, with the pid where the system tells it."""
    pid = owner_of(port)
    by = f" by process {pid}" if pid else ""
    return f"Port {port} is taken{by}. Stop that process, or choose another port: --port {port + 1 if port < 65_535 else 0}"


def free(host: str, port: int) -> bool:
    """Whether `listen` would succeed now."""
    try:
        listen(host, port).close()
    except ConfigurationError:
        return False
    return True


def owner_of(port: int) -> int | None:
    """The process that listens on a TCP port, from /proc; None where that does not exist or may not be read."""
    inodes = set(_inodes(port))
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for handle in (process / "fd").iterdir():
                if str(handle.readlink()) in inodes:
                    return int(process.name)
        except OSError:
            continue  # it ended, or is another user's
    return None


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{columns[9]}]"


def address_of(bound: socket.socket, host: str) -> str:
    """`http://host:port` as a client of this machine reaches it."""
    port = bound.getsockname()[1]
    name = host.strip("[]")
    if name in {"0.0.0.0", ""}:  # noqa: S104 -- recognised here, never chosen
        name = "127.0.0.1"
    elif name == "::":
        name = "::1"
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
