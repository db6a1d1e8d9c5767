"""Named places where a test may kill, pause or fail the process. Silent unless armed.

`PERDURE_FAILPOINTS=name:action[@n][,…]` arms them: at the n-th pass (default 1) `kill` sends SIGKILL to the own process,
`pause` sends SIGSTOP (the tester continues it with SIGCONT) and `error` raises `FailpointError`.
`PERDURE_FAILPOINTS_LOG=FILE` appends each name passed, once, so that a suite can prove it reached every name.
Every durable write and every outside call has a pair `<place>.before` and `<place>.after`; `NAMES` lists the places.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

PLACES = (
    "accept",
    "claim",
    "input_checkpoint",
    "model_call",
    "tool_intent",
    "tool_call",
    "tool_result",
    "task_writes",
    "step_checkpoint",
    "event_publish",
    "park",
    "decision",
    "repair",
    "finish",
    "release",
    "recover",
    "resume",
    "cancel",
    "migrate",
)
"""What each guards is said where it is called. `before`: nothing of it has happened; `after`: it is durable or done."""

NATS_PLACES = ("publish", "accept_reply", "follow.apply", "follow.record", "dispatch")
"""Those that only a process on NATS passes: an event on its way to the stream; the answer to an accepted request; what a gateway
copies of a journal (a page of it, or its being replaced); events and rows as they come; a turn it will wait for."""

DEPLOY_PLACES = (
    "deploy.make_image",
    "deploy.create_network",
    "deploy.remove_network",
    "deploy.connect",
    "deploy.disconnect",
    "deploy.create_volume",
    "deploy.remove_volume",
    "deploy.empty_volume",
    "deploy.create_container",
    "deploy.create_errand",
    "deploy.update_container",
    "deploy.rename_container",
    "deploy.start",
    "deploy.stop",
    "deploy.remove_container",
    "deploy.put_in",
)
"""Those that only `perdure apply`, `destroy` and `restart` pass: whatever changes something at the container engine, by its verb."""

NAMES = tuple(f"{place}.{side}" for place in PLACES for side in ("before", "after"))
NATS_NAMES = tuple(f"{place}.{side}" for place in NATS_PLACES for side in ("before", "after"))
DEPLOY_NAMES = tuple(f"{place}.{side}" for place in DEPLOY_PLACES for side in ("before", "after"))

_KNOWN = NAMES + NATS_NAMES + DEPLOY_NAMES
_ACTIONS = frozenset({"kill", "pause", "error"})


class FailpointError(Exception):
    """Raised by an armed `error` action."""


class _Plan:
    def __init__(self, rules: Mapping[str, tuple[str, int]], log: str | None) -> None:
        self._rules = rules
        self._log = log
        self._passes: dict[str, int] = {}
        self._lock = threading.Lock()

    def pass_through(self, name: str) -> None:
        with self._lock:
            count = self._passes[name] = self._passes.get(name, 0) + 1
            if self._log and count == 1:
                _append(self._log, name)
        action, at = self._rules.get(name, ("", 0))
        if count == at:
            _act(action, name)


def _append(path: str, name: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if name:
            os.write(handle, f"{name}\n".encode())
    finally:
        os.close(handle)


def _act(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise FailpointError(f"failpoint {name}")


def parse(text: str) -> dict[str, tuple[str, int]]:
    """`"claim.after:kill@2"` → `{"claim.after": ("kill", 2)}`. Raises ValueError for an unknown name or action."""
    rules: dict[str, tuple[str, int]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, rest = part.partition(":")
        action, _, count = rest.partition("@")
        if name not in _KNOWN:
            raise ValueError(f"unknown failpoint {name!r}; known: {', '.join(_KNOWN)}")
        if action not in _ACTIONS:
            raise ValueError(f"unknown failpoint action {action!r}; known: {', '.join(sorted(_ACTIONS))}")
        if count and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise ValueError(f"the pass of failpoint {name!r} is {count!r}; it is a whole number from 1")
        rules[name] = (action, int(count) if count else 1)
    return rules


_plan: _Plan | None = None


def arm(text: str, log: str | None = None) -> None:
    """Arms failpoints for this process; `arm("")` without a log disarms them."""
    global _plan
    rules = parse(text)
    if log:
        _append(log, "")
    _plan = _Plan(rules, log) if rules or log else None


def arm_from_environment() -> None:
    """Raises ValueError, a sentence, when the variables make no sense."""
    try:
        arm(os.environ.get("PERDURE_FAILPOINTS", ""), os.environ.get("PERDURE_FAILPOINTS_LOG"))
    except ValueError as error:
        raise ValueError(f"PERDURE_FAILPOINTS: {error}. Correct the variable, or unset it.") from error
    except OSError as error:
        raise ValueError(
            f"PERDURE_FAILPOINTS_LOG: {error.filename} cannot be written: {error.strerror}. Name another file."
        ) from error


def failpoint(name: str) -> None:
    """Passes the named place. Costs one comparison when nothing is armed."""
    if _plan is not None:
        _plan.pass_through(name)


refusal = ""
"""What arming at import met, one sentence: an import is no place to tell a person. Whoever starts a process asks."""

try:
    arm_from_environment()
except ValueError as error:
    refusal = str(error)
