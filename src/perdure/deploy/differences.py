"""What differs between a wanted container and the real one, attribute by attribute, in words for people. Pure.

Not compared, on purpose: labels outside of `perdure.` (other programs mark containers for themselves) and the name of the image (what
it holds is compared). Values of variables are never said, nor what looks like a secret in somebody's command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from perdure.deploy.model import Attachment, Change, Container, HealthCheck, Mount, Port

LABELS_OF_OURS = "perdure."
NONE = "none"

_IN_PLACE = ("limits.", "networks.", "restart", "running")
_SECRET_FLAG = re.compile(r"(--?[\w-]*(?:token|password|secret|key)[\w-]*)([= ])\S+", re.IGNORECASE)
_ADDRESS_SECRET = re.compile(r"(://)[^/@\s]+@")


def in_place(change: Change) -> bool:
    """Whether an engine can change it while the container lives. A limit can be set and changed, but not taken away."""
    lifted = change.attribute.startswith("limits.") and change.wants == NONE
    return change.attribute.startswith(_IN_PLACE) and not lifted


def differences(wanted: Container, real: Container, *, image_id: str | None) -> tuple[Change, ...]:
    """`image_id`: of the image that is wanted; None: it is not there yet."""
    return tuple(_all(wanted, real, image_id))


def _all(wanted: Container, real: Container, image_id: str | None) -> Iterator[Change]:
    if image_id is None or real.image_id != image_id:
        yield Change("image", _image(real.image, real.image_id), _image(wanted.image, image_id))
    for attribute, words in _PLAIN.items():
        had, wants = getattr(real, attribute), getattr(wanted, attribute)
        if had != wants and not (not wants and attribute in real.inherited):
            yield Change(attribute, words(had), words(wants))
    yield from _limits(wanted, real)
    yield from _variables(wanted, real)
    yield from _labels(wanted.labels, real.labels)
    yield from _keyed("mounts", _by(wanted.mounts, "target"), _by(real.mounts, "target"), _mount)
    yield from _keyed(
        "tmpfs", _by(wanted.tmpfs, "target"), _by(real.tmpfs, "target"), lambda each: each.options or "without options"
    )
    yield from _keyed("networks", _by(wanted.networks, "network"), _by(real.networks, "network"), _attachment)
    yield from _keyed("ports", _ports(wanted.ports), _ports(real.ports), _published)
    yield from _keyed("unasked", dict(wanted.unasked), dict(real.unasked), _short)


# -- words ------------------------------------------------------------------------------------------------------------


def _image(reference: str, image_id: str | None) -> str:
    return f"{reference} ({image_id.removeprefix('sha256:')[:12]})" if image_id else f"{reference} (not there yet)"


def _command(words: tuple[str, ...]) -> str:
    return _ADDRESS_SECRET.sub(r"\1***@", _SECRET_FLAG.sub(r"\1\2***", shlex.join(words))) or NONE


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(words) or NONE


def _text(value: str) -> str:
    return value or NONE


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _seconds(value: int) -> str:
    return f"{value} s"


def _health(check: HealthCheck | None) -> str:
    if check is None:
        return NONE
    times = f"every {check.interval_seconds:g} s, within {check.timeout_seconds:g} s, {check.retries} times"
    return f"{_command(check.test)} ({times}, {check.start_period_seconds:g} s to start)"


_PLAIN: Mapping[str, Callable[[Any], str]] = {
    "entrypoint": _command,
    "command": _command,
    "working_folder": _text,
    "user": _text,
    "health": _health,
    "restart": _text,
    "stop_seconds": _seconds,
    "read_only": _yes,
    "capabilities_dropped": _list,
    "capabilities_added": _list,
    "security": _list,
    "init": _yes,
    "privileged": _yes,
    "host_modes": _list,
    "running": _yes,
}


def _mount(mount: Mount) -> str:
    what = {"volume": "volume ", "bind": "folder "}.get(mount.kind, f"{mount.kind} ")
    return f"{what}{mount.source}{', read-only' if mount.read_only else ''}"


def _attachment(attachment: Attachment) -> str:
    return f"attached as {_list(attachment.aliases)}" if attachment.aliases else "attached"


def _published(port: Port) -> str:
    return f"{port.address or 'every address'}:{port.host_port}"


# -- what has parts ---------------------------------------------------------------------------------------------------


def _keyed(
    attribute: str, wanted: Mapping[str, Any], real: Mapping[str, Any], words: Callable[[Any], str]
) -> Iterator[Change]:
    for key in sorted(wanted.keys() | real.keys()):
        had, wants = real.get(key), wanted.get(key)
        if had != wants:
            yield Change(
                f"{attribute}.{key}", NONE if had is None else words(had), NONE if wants is None else words(wants)
            )


def _by(things: Iterable[Any], key: str) -> dict[str, Any]:
    return {getattr(each, key): each for each in things}


def _ports(ports: Iterable[Port]) -> dict[str, Port]:
    """A port may be published at several addresses: each that is not the first is a line of its own."""
    found: dict[str, Port] = {}
    for each in sorted(ports):
        key = f"{each.container_port}/{each.protocol}"
        found[key if key not in found else f"{key}@{each.address}:{each.host_port}"] = each
    return found


def _limits(wanted: Container, real: Container) -> Iterator[Change]:
    for name, unit, scale in (
        ("memory_bytes", " bytes", 1),
        ("nano_cpus", " processors", 1_000_000_000),
        ("pids", " processes", 1),
    ):
        had, wants = getattr(real.limits, name), getattr(wanted.limits, name)
        if had != wants:
            had_words, wants_words = (NONE if each is None else f"{each / scale:.10g}{unit}" for each in (had, wants))
            yield Change(f"limits.{name}", had_words, wants_words)


def _variables(wanted: Container, real: Container) -> Iterator[Change]:
    ours = {each.name: each for each in wanted.environment}
    theirs = {
        each.name: each
        for each in real.environment
        if each.name in ours or f"environment.{each.name}" not in real.inherited
    }
    for name in sorted(ours.keys() | theirs.keys()):
        want, had = ours.get(name), theirs.get(name)
        if want is None:
            yield Change(f"environment.{name}", "set", "not set")
        elif had is None:
            yield Change(f"environment.{name}", "not set", "set (secret)" if want.secret else "set")
        elif want.digest and (had.veiled() if want.secret else had) != want:
            yield Change(
                f"environment.{name}",
                "another value",
                "the secret as it is here" if want.secret else "the project's value",
            )


def _labels(wanted: Mapping[str, str], real: Mapping[str, str]) -> Iterator[Change]:
    ours = {name: value for name, value in real.items() if name.startswith(LABELS_OF_OURS) or name in wanted}
    for name in sorted(wanted.keys() | ours.keys()):
        if wanted.get(name) != ours.get(name):
            yield Change(f"labels.{name}", _short(ours.get(name)), _short(wanted.get(name)))


def _short(text: str | None) -> str:
    if text is None:
        return NONE
    return text if len(text) <= 40 else f"{text[:12]}…"
