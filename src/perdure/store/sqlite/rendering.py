"""The wire form of stored messages, for events that refer to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from perdure.messages import wire_message
from perdure.store.sqlite.encoding import StrictSerializer
from perdure.store.sqlite.loading import Loader, message_of
from perdure.store.sqlite.memory import ThreadMemory


def messages(connection: apsw.Connection, serializer: StrictSerializer, items: Sequence[int]) -> Mapping[int, Any]:
    """`{item id: wire message}`; what a live watcher got when the message was committed."""
    loader = Loader(connection, serializer, ThreadMemory(""))
    rendered = {}
    for item_id, element in loader.items(items).items():
        message = message_of(element, serializer)
        if message is not None:
            rendered[item_id] = wire_message(message)
    return rendered
