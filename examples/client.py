"""A client that cannot lose a turn: an idempotency key for the message, a cursor for the stream.

    PERDURE_TOKEN=... python examples/client.py http://127.0.0.1:8700 "four-step job"

Kill and restart the server while it runs: the answer is printed once, complete.
"""

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator

import httpx2

RECONNECT_SECONDS = 0.5


def send(http: httpx2.Client, message: str) -> str:
    """Repeats the request until it is answered; the key makes every repeat the same turn. Returns the conversation."""
    key = uuid.uuid4().hex
    while True:
        try:
            answer = http.post("/api/chat", json={"message": message}, headers={"Idempotency-Key": key})
            answer.raise_for_status()
            return str(answer.json()["conversation"])
        except httpx2.TransportError:
            time.sleep(RECONNECT_SECONDS)


def frames(http: httpx2.Client, conversation: str) -> Iterator[tuple[str, dict[str, object]]]:
    """(event, data) until the terminal event; reconnects from the last seq it saw."""
    cursor = "0"
    while True:
        try:
            headers = {"Last-Event-ID": cursor}
            with http.stream("GET", "/api/chat", params={"conversation": conversation}, headers=headers) as stream:
                stream.raise_for_status()
                event = ""
                for line in stream.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        event = value
                    elif field == "id":
                        cursor = value
                    elif field == "data" and event != "ping":
                        data = json.loads(value)
                        yield event, data
                        if event in {"end", "chat-error"} and "seq" in data:  # without one it goes on: come back
                            return
        except httpx2.TransportError:
            time.sleep(RECONNECT_SECONDS)


def main() -> None:
    base_url, message = sys.argv[1], sys.argv[2]
    headers = {"Authorization": f"Bearer {os.environ['PERDURE_TOKEN']}"}
    messages: dict[str, str] = {}
    with httpx2.Client(base_url=base_url, headers=headers, timeout=60) as http:
        for event, data in frames(http, send(http, message)):
            if event == "reset":
                messages.clear()
            elif event == "message" and isinstance(said := data["message"], dict) and said["role"] == "assistant":
                messages[str(said["id"])] = str(said["content"])
    print("\n".join(filter(None, messages.values())))


if __name__ == "__main__":
    main()
