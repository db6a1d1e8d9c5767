"""Cards in the terminal: what waits, shown exactly, the commands that decide it, and the person who is asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

from perdure.cli.client import Client, Refused
from perdure.cli.output import exact, hint, local_time

Card = Mapping[str, Any]

_VERBS = {"approval": ("approve", "deny"), "uncertain": ("happened", "retry", "give-up"), "interrupt": ("answer",)}


def open_cards(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [card for card in turn.get("cards", ()) if card["state"] == "opened"]


def title(card: Card) -> str:
    if card["kind"] == "interrupt":
        return f"asks: {exact(card.get('request'))}"
    tool = f"{card['tool']} (of {card['server']})" if card.get("server") else card["tool"]
    if card["kind"] == "uncertain":
        return f"did it happen? {tool} was started, and what came of it is not known"
    return f"wants to call {tool}"


def details(card: Card) -> list[tuple[str, str]]:
    """Name and text of each line below the title; the arguments whole, whatever their length."""
    lines: list[tuple[str, str]] = []
    if card["kind"] != "interrupt":
        lines.append(("arguments", exact(card.get("arguments"))))
        lines.append(("effect", str(card.get("effect_class"))))
    if card.get("why"):
        lines.append(("why", str(card["why"])))
    if card["kind"] == "uncertain" and card.get("key"):
        lines.append(("key", str(card["key"])))
    if card.get("expires_at"):
        lines.append(("expires", f"{local_time(card['expires_at'])} (then it is denied)"))
    if card.get("deciders"):
        lines.append(("deciders", ", ".join(card["deciders"])))
    return lines + _decision(card)


def _decision(card: Card) -> list[tuple[str, str]]:
    if not card.get("decision"):
        return [] if card["state"] == "opened" else [("state", card["state"])]
    lines = [("decided", f"{card['decision']} by {card['decided_by']}, {local_time(card['decided_at'])}")]
    for name, what in (("decided_arguments", "ran with"), ("result", "result"), ("value", "answer")):
        if name in card:
            lines.append((what, exact(card[name])))
    return [*lines, ("note", card["note"])] if card.get("note") else lines


def tell(card: Card, write: Any = hint) -> None:
    """`write(text, style)` gets each line."""
    write(title(card), "yellow")
    for name, text in details(card):
        write(f"  {name:<10} {text}", "")


def tell_commands(card: Card) -> None:
    value = " JSON" if card["kind"] == "interrupt" else ""
    hint(
        "  decide with: " + " · ".join(f"perdure approvals {verb} {card['id']}{value}" for verb in _VERBS[card["kind"]])
    )


def json_or_text(value: str) -> Any:
    try:
        return _json(value)
    except ValueError:
        return value


def _json(text: str) -> Any:
    """Strictly: Python's own reader takes NaN and infinities, which nobody could be sent. Raises ValueError."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# -- asking -----------------------------------------------------------------------------------------------------------


async def ask_line(prompt: str) -> str | None:
    """A line from the terminal, None at its end. A daemon thread reads, so that Ctrl-C does not wait for Enter."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def read() -> None:
        try:
            text: str | None = input(prompt)
        except EOFError:
            text = None
        loop.call_soon_threadsafe(lambda: None if line.done() else line.set_result(text))

    threading.Thread(target=read, daemon=True).start()
    return await line


async def decide_here(client: Client, turn: str) -> bool:
    """Asks the person for every open card of the turn. False when one was left for later."""
    answered = True
    for card in open_cards(await client.read(f"/api/turns/{turn}")):
        tell(card)
        answered = await _decide(client, card) and answered
    return answered


async def _decide(client: Client, card: Card) -> bool:
    while True:
        decision = await _ASKS[card["kind"]](card)
        if decision is None:
            return False
        try:
            await client.decide(card["id"], decision)
            return True
        except Refused as refused:
            hint(refused.message, "yellow")
            if refused.status != 400:
                return refused.code == "APPROVAL_DECIDED"


async def _ask_approval(card: Card) -> dict[str, Any] | None:
    while True:
        said = await ask_line("approve [a], edit the arguments [e], deny [d], later [Enter]: ")
        if not said:
            return None
        choice = said.strip().lower()
        if choice in {"a", "approve"}:
            return {"decision": "approve"}
        if choice in {"d", "deny"}:
            note = await ask_line("why? (told to the model; Enter for nothing) ")
            return {"decision": "deny", "note": note or None}
        if choice in {"e", "edit"}:
            edited = await _ask_arguments(card)
            if edited is not None:
                return {"decision": "approve", "arguments": edited}


async def _ask_arguments(card: Card) -> dict[str, Any] | None:
    said = await ask_line("arguments (a JSON object; Enter to go back): ")
    if not said:
        return None
    try:
        arguments = arguments_of(said)
    except ValueError as error:
        hint(str(error), "yellow")
        return None
    hint(f"  {card['tool']} would run with exactly {exact(arguments)}")
    return arguments if (await ask_line("run it? [y/N] ") or "").strip().lower() in {"y", "yes"} else None


def arguments_of(text: str) -> dict[str, Any]:
    """Raises ValueError, a sentence."""
    try:
        arguments = _json(text)
    except ValueError as error:
        raise ValueError(f"The arguments are not JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise ValueError('The arguments must be a JSON object, for example {"name": "web"}.')
    return arguments


async def _ask_uncertain(card: Card) -> dict[str, Any] | None:
    while True:
        said = await ask_line("it happened [h], run it again [r], give up [g], later [Enter]: ")
        if not said:
            return None
        choice = said.strip().lower()
        if choice in {"h", "happened"}:
            result = await ask_line("what did it give? (JSON or text, told to the model; Enter for nothing) ")
            return {"decision": "happened", "result": json_or_text(result) if result else None}
        if choice in {"r", "retry"}:
            return {"decision": "retry"}
        if choice in {"g", "give up", "give-up"}:
            note = await ask_line("why? (told to the model; Enter for nothing) ")
            return {"decision": "give_up", "note": note or None}


async def _ask_question(card: Card) -> dict[str, Any] | None:
    said = await ask_line("answer (JSON or text), later [Enter]: ")
    return {"decision": "answer", "value": json_or_text(said)} if said else None


_ASKS = {"approval": _ask_approval, "uncertain": _ask_uncertain, "interrupt": _ask_question}
