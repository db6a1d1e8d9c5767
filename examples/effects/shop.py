"""A shop's tools, one of each class. The outside world is one file, `shop.jsonl`: a line for everything that happened to it."""

import json
from pathlib import Path
from typing import Any

import perdure

WORLD = Path("shop.jsonl")


def happened(key: str | None) -> str | None:
    """What the world knows of the call with this key; None when it never came there."""
    lines = WORLD.read_text().splitlines() if WORLD.exists() else []
    return next((str(line["what"]) for line in map(json.loads, lines) if line["key"] == key), None)


def happen(what: str) -> str:
    with WORLD.open("a") as world:
        world.write(json.dumps({"what": what, "key": perdure.call_key()}) + "\n")
    return what


@perdure.effect("read")
def stock(item: str) -> str:
    """How many of an item there are."""
    return f"There are 3 of {item}."


@perdure.effect("keyed")
def leave_note(text: str) -> str:
    """Leaves a note. The other side takes a key, and does nothing when it knows it."""
    return happened(perdure.call_key()) or happen(f"Note: {text}")


def find_shipment(key: str) -> Any:
    """What became of the call with this key. Where the other side cannot tell, a lookup gives None or raises."""
    return happened(key) or perdure.NOT_HAPPENED


@perdure.effect("checkable", lookup=find_shipment)
def ship(order: int) -> str:
    """Ships an order. The carrier does everything it is told, twice if it is told twice, but it can be asked by the key."""
    return happen(f"Shipped: order {order}")


def refund(order: int, amount: float) -> str:
    """Pays money back. It says nothing of itself, so it is `once`: never started again without a person's word."""
    return happen(f"Paid back: {amount} for order {order}")


tools = [stock, leave_note, ship, refund]
