"""What people do to a server, and what must come of it whatever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random

from tests.crash import world
from tests.crash.desk import Desk
from tests.crash.people import Person
from tests.crash.records import Expected, Sent
from tests.crash.scripted import DONE, write_script

Scenario = Callable[[Person], Awaitable[None]]

STEPS = ("one", "two", "three", "four")
PLAIN = Expected(answer="hello there", assistant_messages=1)
FOUR_STEPS = Expected("All four steps are done: one, two, three, four.", STEPS, 5)
THREE_AT_ONCE = Expected("All three are done: alpha, beta, gamma.", ("alpha", "beta", "gamma"), 2)
PARKED = Expected("On the left a lamp, on the right a door.", assistant_messages=1)
TOOL_ERROR = Expected(assistant_messages=2)
ENDLESS = Expected(endings=frozenset({"failed"}), codes=frozenset({"RECURSION_LIMIT"}))


async def plain_answer(person: Person) -> None:
    await person.ended(await person.send("/say hello there", PLAIN))


async def four_step_job(person: Person) -> None:
    await person.ended(await person.send("please do the four-step job", FOUR_STEPS))


async def three_at_once(person: Person) -> None:
    await person.ended(await person.send("do three at once", THREE_AT_ONCE))


async def parked_graph(person: Person) -> None:
    sent = await person.send("ask me", PARKED, agent="parked")
    await person.answer_cards(sent, {"left": "a lamp", "right": "a door"})
    await person.ended(sent)


async def tool_error(person: Person) -> None:
    await person.ended(await person.send("/fail", TOOL_ERROR))


async def cancel_then_more(person: Person) -> None:
    """Cancel in the middle leaves a thread that the next message can continue (repair)."""
    sent = await person.send("please do the four-step job", FOUR_STEPS)
    await person.seen(sent, results=1)
    await person.cancel(sent)
    await person.ended(sent)
    await plain_answer(person)


async def failed_then_more(person: Person) -> None:
    """A new message after a failed turn repairs the thread and supersedes the turn."""
    await person.ended(await person.send("/loop", ENDLESS, agent="short"))
    await person.ended(await person.send("/say hello there", PLAIN, agent="short"))


async def failed_then_resumed(person: Person) -> None:
    """A person's resume re-opens the turn with a fresh step budget: it fails again, with a second ending."""
    sent = await person.send("/loop", ENDLESS, agent="short")
    await person.ended(sent)
    await person.resume(sent)
    await person.ended(sent)


async def one_behind_another(person: Person) -> None:
    first = await person.send("do three at once", THREE_AT_ONCE)
    second = await person.send("/say hello there", PLAIN, when_busy="enqueue")
    await person.ended(first)
    await person.ended(second)


async def handed_over(person: Person) -> None:
    """A planned stop in the middle; the supervisor starts the server again."""
    sent = await person.send("please do the four-step job", FOUR_STEPS)
    await person.seen(sent, results=1)
    await person.server.stop()
    await person.ended(sent)


async def killed_once(person: Person) -> None:
    """`kill -9` in the middle, for what happens at the next start."""
    sent = await person.send("please do the four-step job", FOUR_STEPS)
    await person.seen(sent, results=1)
    await person.server.kill()
    await person.ended(sent)


# -- people who decide (graphs/effects.toml) --------------------------------------------------------------------------

ANSWERED = Expected(DONE, assistant_messages=2)
SERVICES = write_script([[("gated", "x"), ("gated", "y"), ("read", "z")]])
CHARGES = write_script([[("once", "a"), ("once", "b"), ("keyed", "c")]])


@asynccontextmanager
async def _desk(person: Person) -> AsyncIterator[Desk]:
    """One edits the arguments of the first call it is asked about, denies the next, and approves the third."""
    words = ("edit", "deny", "approve")
    desk = Desk(person.server, person.history, Random(f"{person.server.folder}"), words=words)
    try:
        yield desk
    finally:
        await desk.close()


async def _at_work(person: Person, tool: str) -> None:
    """Waits until a call of this tool has reached the outside world."""
    async with asyncio.timeout(60):
        while not any(each.tool == tool for each in world.read(person.server.effects)):
            await asyncio.sleep(0.01)


async def _answered(person: Person, script: str, agent: str) -> None:
    async with _desk(person):
        await person.ended(await person.send(script, ANSWERED, agent=agent))


async def approved_services(person: Person) -> None:
    """Two gated calls and one that is not, a task each."""
    await _answered(person, SERVICES, "effects")


async def approved_in_one_task(person: Person) -> None:
    await _answered(person, SERVICES, "own")


async def approved_by_middleware(person: Person) -> None:
    await _answered(person, SERVICES, "made")


async def charges(person: Person) -> None:
    await _answered(person, CHARGES, "effects")


async def charges_in_one_task(person: Person) -> None:
    await _answered(person, CHARGES, "own")


async def _killed_at_work(person: Person, agent: str) -> Sent:
    sent = await person.send(CHARGES, ANSWERED, agent=agent)
    await _at_work(person, "charge")
    await person.server.kill()
    return sent


async def uncertain_charge(person: Person) -> None:
    """`kill -9` while a `once` call is at work; the next life asks, and people say what the outside says."""
    sent = await _killed_at_work(person, "effects")
    async with _desk(person):
        await person.ended(sent)


async def uncertain_in_one_task(person: Person) -> None:
    sent = await _killed_at_work(person, "own")
    async with _desk(person):
        await person.ended(sent)


async def uncertain_then_cancelled(person: Person) -> None:
    """Nobody decides: the parked turn is cancelled, which closes its cards."""
    sent = await _killed_at_work(person, "effects")
    turn, watcher = sent.turn, person.watcher
    assert watcher is not None and turn is not None
    await watcher.until(lambda view: bool(view.turn(turn).open_cards) or view.turn(turn).ending is not None)
    await person.cancel(sent)
    await person.ended(sent)
    await person.ended(await person.send("hello", Expected("Heard: hello", assistant_messages=1), agent="effects"))


async def expired_approval(person: Person) -> None:
    """Nobody decides in time: the call is denied, and the model goes on."""
    await person.ended(await person.send(SERVICES, ANSWERED, agent="hasty"))


async def limited_then_resumed(person: Person) -> None:
    """A limit ends the turn; a person's resume gives it a fresh budget."""
    script = write_script([[("once", "a")], [("once", "b")], [("once", "c")]])
    limited = Expected(DONE, assistant_messages=4, codes=frozenset({"LIMIT_REACHED"}))
    sent = await person.send(script, limited, agent="limited")
    async with _desk(person):
        while (await person.ended(sent)).ending != {"event": "end", "status": "completed"}:
            assert await person.resume(sent), "a turn that met its limit could not be resumed"


async def asked_otherwise(person: Person) -> None:
    """A task whose answer was used, and whose process died then, asks another question in its next life (DESIGN 4a.4)."""
    sent = await person.send("ask", Expected("B: for B", assistant_messages=1), agent="otherwise")
    await person.answer_cards(sent, {"A": "for A", "B": "for B"})
    await person.ended(sent)


async def asked_otherwise_after_a_failure(person: Person) -> None:
    """The same with an exception in the place of the death: a person resumes the turn."""
    person.insists = True
    sent = await person.send("fail", Expected("B: for B", assistant_messages=1), agent="otherwise")
    await person.answer_cards(sent, {"A": "for A"})
    await person.failed(sent)
    await person.resume(sent)
    await person.answer_cards(sent, {"B": "for B"})
    await person.ended(sent)


async def asked_otherwise_after_a_repair(person: Person) -> None:
    """The turn that failed is left, and a new message repairs the thread: its question is a new one."""
    failing = Expected(endings=frozenset({"failed"}), codes=frozenset({"AGENT_FAILURE"}))
    sent = await person.send("fail", failing, agent="otherwise")
    await person.answer_cards(sent, {"A": "for A"})
    await person.failed(sent)
    more = await person.send("more", Expected("B: for B", assistant_messages=1), agent="otherwise")
    await person.answer_cards(more, {"B": "for B"})
    await person.ended(more)


DECIDING: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        approved_services,
        approved_in_one_task,
        approved_by_middleware,
        charges,
        charges_in_one_task,
        uncertain_charge,
        uncertain_in_one_task,
        uncertain_then_cancelled,
        expired_approval,
        limited_then_resumed,
        asked_otherwise,
        asked_otherwise_after_a_failure,
        asked_otherwise_after_a_repair,
    )
}

KILLED = frozenset({"killed_once", "uncertain_charge", "uncertain_in_one_task", "uncertain_then_cancelled"})
"""Scenarios with a death of their own in the first life: what is armed belongs to the second."""

CALM: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        plain_answer,
        four_step_job,
        three_at_once,
        parked_graph,
        tool_error,
        cancel_then_more,
        failed_then_more,
        failed_then_resumed,
        one_behind_another,
        handed_over,
        killed_once,
    )
}

SCENARIOS: Mapping[str, Scenario] = {**CALM, **DECIDING}

MAIN = ("plain_answer", "four_step_job", "three_at_once", "parked_graph")
"""The four that every failpoint is crossed with."""

__all__ = ["CALM", "DECIDING", "KILLED", "MAIN", "SCENARIOS", "Scenario", "Sent"]
