"""What people do to a server, and what must come of it whatever dies in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from tests.crash.people import Person
from tests.crash.records import Expected, Sent

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


SCENARIOS: Mapping[str, Scenario] = {
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

MAIN = ("plain_answer", "four_step_job", "three_at_once", "parked_graph")
"""The four that every failpoint is crossed with."""

__all__ = ["MAIN", "SCENARIOS", "Scenario", "Sent"]
