"""Whether a container is well: nothing that needs it goes on before, and nothing it replaces is removed before."""

from __future__ import annotations

from perdure.clock import Clock
from perdure.deploy.engine import Engine, EngineError, Life
from perdure.deploy.model import HealthCheck

LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.25, 1.0
MARGIN_SECONDS = 30.0
"""On top of what the health check itself allows: engines are busy, too."""

STANDS_SECONDS = 5.0
"""How long one without a health check must have run, and not have been started again, before it counts as well."""

RESTARTS_BORNE = 3
TAIL_LINES = 20


class NotWell(EngineError):
    """A container did not become well. Its last lines are in the message."""

    code = "CONTAINER_NOT_WELL"


async def until_well(engine: Engine, name: str, clock: Clock, *, restarts_borne: int = RESTARTS_BORNE) -> None:
    """Returns when it runs and its health check passes; one that has none, when it has stood for STANDS_SECONDS. Raises NotWell when
    it will not: also when it has ended and was started again so often.

    An engine runs the check for the first time when its interval has gone by, and an interval that suits a start is a load for the
    container's whole life: so the same check is run from here until it passes.
    """
    begun, pause, asks = clock.monotonic(), LOOK_SECONDS, True
    stands, stood_from = _start_of(None), begun
    while True:
        life = await engine.life(name)
        if stands != (now := _start_of(life)):
            stands, stood_from = now, clock.monotonic()
        if (
            life is not None
            and life.well
            and (life.health != "none" or clock.monotonic() >= stood_from + STANDS_SECONDS)
        ):
            return
        if asks and life is not None and _in_doubt(life):
            passed = await _passes(engine, name, life)
            if passed:
                return
            asks = passed is not None  # one that hangs is not asked again: it would hang beside itself
        why = _hopeless(life, restarts_borne)
        if why is None and clock.monotonic() >= begun + patience_seconds(life.check if life else None):
            why = f"it is still {word_of(life)}" if life is None or not life.well else "it does not stay up"
        if why is not None:
            raise NotWell(f"{name} did not become well: {why}.{await _last_lines(engine, name, life)}")
        await clock.sleep(pause)
        pause = min(pause * 1.5, LONGEST_LOOK_SECONDS)


async def still_runs(engine: Engine, name: str) -> None:
    """Of one that was well a moment ago. Raises NotWell."""
    life = await engine.life(name)
    if life is None or not life.running:
        raise NotWell(f"{name} was well, and is {word_of(life)} now.{await _last_lines(engine, name, life)}")


async def is_well(engine: Engine, name: str, life: Life) -> bool:
    """Also of one that the engine itself has not checked yet."""
    return life.well or (_in_doubt(life) and bool(await _passes(engine, name, life)))


def _start_of(life: Life | None) -> tuple[bool, int, str]:
    """Which of its starts this is, while it runs."""
    return (False, 0, "") if life is None else (life.running, life.restarts, life.since)


def _in_doubt(life: Life) -> bool:
    """Engines also call one unhealthy that was paused, or is between two starts, until they have checked it again."""
    return life.running and life.health in {"starting", "unhealthy"}


async def _passes(engine: Engine, name: str, life: Life) -> bool | None:
    return None if life.check is None else await engine.passes(name, life.check)


def patience_seconds(check: HealthCheck | None) -> float:
    """As long as the engine itself needs before it says `unhealthy`, and some more."""
    if check is None:
        return MARGIN_SECONDS
    tries = (check.interval_seconds + check.timeout_seconds) * (check.retries + 1)
    return check.start_period_seconds + tries + MARGIN_SECONDS


def _hopeless(life: Life | None, restarts_borne: int) -> str | None:
    if life is None:
        return "it is gone"
    if life.paused:
        return "somebody has paused it"
    if life.restarts >= restarts_borne:
        times = "again" if life.restarts == 1 else f"{life.restarts} times"
        return f"it has ended {times} (exit code {life.exit_code})"
    if life.started and not life.running and not life.restarting:
        return f"it has ended (exit code {life.exit_code})"
    if life.running and life.health == "unhealthy":
        return f"its health check fails ({life.said or 'it says nothing'})"
    return None


def word_of(life: Life | None) -> str:
    """How it is."""
    return "gone" if life is None else life.health if life.running else "down"


async def _last_lines(engine: Engine, name: str, life: Life | None) -> str:
    if life is None:
        return ""
    lines = [line async for line in engine.logs(name, follow=False, tail=TAIL_LINES)]
    return "\nIts last lines:\n" + "\n".join(lines) if lines else ""
