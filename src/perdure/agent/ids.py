"""New ids: random, 128 bits, hexadecimal. And the id of a person's message, which follows from its turn's."""

from __future__ import annotations

import secrets

from perdure.turns import MESSAGE_PREFIX


def new_id() -> str:
    return secrets.token_hex(16)


def message_of_turn(turn: str | None) -> str | None:
    return None if turn is None else MESSAGE_PREFIX + turn


def turn_of_message(message: str) -> str | None:
    """The turn whose own message this would be; None for an id of another form."""
    return message.removeprefix(MESSAGE_PREFIX) if message.startswith(MESSAGE_PREFIX) else None
