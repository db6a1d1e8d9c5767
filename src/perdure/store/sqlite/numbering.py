"""Numbers for what several journals count alike: by time, and within a conversation (or one agent's audit) in its own order."""

from __future__ import annotations

import apsw

from perdure.store.sqlite.queries import Queries


def turn_number(connection: apsw.Connection, queries: Queries, conversation: str, source: int, accepted_at: int) -> int:
    """For a new turn of a conversation that its journal gave the number `source`: the microsecond of its acceptance, or the
    next that is free behind the turn before it. Turns that were accepted later and came earlier make room."""
    before = queries.one(connection, "turn_before", conversation=conversation, source=source)
    least = before["accept_number"] + 1 if before else accepted_at
    number = last = _free(connection, queries, "number_taken", max(accepted_at, least))
    for later in queries.all(connection, "turns_behind", conversation=conversation, source=source):
        if later["accept_number"] > last:
            break
        last = _free(connection, queries, "number_taken", last + 1)
        queries.run(connection, "turn_renumber", id=later["id"], number=last)
    return number


def audit_number(connection: apsw.Connection, queries: Queries, agent: str, at: int) -> int:
    """For the next deed of an agent."""
    last = queries.one(connection, "audit_last", agent=agent)
    return _free(connection, queries, "audit_taken", max(at, last["number"] + 1 if last else 0))


def _free(connection: apsw.Connection, queries: Queries, taken: str, number: int) -> int:
    while queries.one(connection, taken, number=number) is not None:
        number += 1
    return number
