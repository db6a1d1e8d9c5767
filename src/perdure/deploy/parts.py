"""Small parts of containers: health checks, limits, the name under which an address is reached. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from perdure.config import LimitSettings
from perdure.deploy.model import HealthCheck, Limits


def web_check(port: int, path: str = "/api/healthz") -> HealthCheck:
    """Python is in every image made here; neither a proxy of the environment nor a module of the project has a part in it."""
    ask = (
        "import http.client, sys; "
        f"c = http.client.HTTPConnection('127.0.0.1', {port}, timeout=4); c.request('GET', '{path}'); "
        "sys.exit(c.getresponse().status != 200)"
    )
    return own_check(("python", "-I", "-c", ask))


def own_check(command: Sequence[str]) -> HealthCheck:
    """Seldom: a check is a process of its own, for the container's whole life. An apply does not wait for it, see `health`."""
    return HealthCheck(("CMD", *command), 15.0, 5.0, 60.0, 3)


def limits_of(given: LimitSettings | None) -> Limits:
    if given is None:
        return Limits()
    cpus = None if given.cpus is None else round(given.cpus * 1_000_000_000)
    return Limits(given.memory, cpus, given.pids)


def host_of(bind: str) -> Iterator[str]:
    """The name under which an address other than the loopback is reached; none for all of them."""
    address = ipaddress.ip_address(bind)
    if not address.is_loopback and not address.is_unspecified:
        yield f"[{bind}]" if address.version == 6 else bind
