"""A server's log at its most talkative holds nothing of what people and models say to tools, and no secret of a token."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import LIMIT_SECONDS, ServerProcess, eventually

TOOLS = '''
import os

def pay(to: str, amount: int) -> str:
    """Pays."""
    if to.startswith("dies"):
        os.kill(os.getpid(), 9)
    if amount < 0:
        raise ValueError(f"{to} cannot get {amount}")
    return f"{to} got {amount}, says canary-result"
'''

PROJECT = """
tools = ["./tools.py:pay"]
needs_approval = ["pay"]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "perdure.toml").write_text(PROJECT)
    process = ServerProcess(tmp_path, PERDURE_LOG_LEVEL="debug", PERDURE_LOG_FORMAT="json")
    try:
        yield process.start()
    finally:
        process.close()


def park(server: ServerProcess, arguments: str) -> tuple[str, str]:
    """The turn of a gated call, and its card."""
    turn = server.say(f"/call pay {arguments}")["turn"]
    (card,) = server.until(turn, "parked")["cards"]
    return turn, card["id"]


def decide(server: ServerProcess, card: str, **decision: object) -> None:
    answer = server.post(f"/api/approvals/{card}", decision)
    assert answer.status_code in {200, 202}, answer.text


def test_arguments_results_notes_and_secrets_are_in_no_line(server: ServerProcess) -> None:
    made = server.post("/api/tokens", {"name": "ada", "role": "operator"}).json()
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    assert server.get("/api/approvals", headers=bearer).status_code == 200

    turn, card = park(server, '{"to": "canary-approved", "amount": 1}')
    decide(server, card, decision="approve", arguments={"to": "canary-edited", "amount": 2})
    server.until(turn, "completed")
    turn, card = park(server, '{"to": "canary-denied", "amount": 1}')
    decide(server, card, decision="deny", note="canary-note")
    server.until(turn, "completed")
    turn, card = park(server, '{"to": "canary-raised", "amount": -1}')
    refused = server.post(f"/api/approvals/{card}", {"decision": "approve", "arguments": {"to": ["canary-misfit"]}})
    assert refused.status_code == 400
    decide(server, card, decision="approve")
    server.until(turn, "completed")
    misfit = server.say('/call pay {"to": ["canary-misfit"], "amount": "canary-misfit"}')["turn"]
    server.until(misfit, "completed")

    turn, card = park(server, '{"to": "dies-canary", "amount": 1}')
    decide(server, card, decision="approve")
    assert server.process is not None
    assert server.process.wait(LIMIT_SECONDS) == -signal.SIGKILL
    server.start()
    (card,) = eventually(
        lambda: [each["id"] for each in server.get("/api/approvals").json()["items"]], "the uncertain call is shown"
    )
    decide(server, card, decision="happened", result="canary-happened")
    server.until(turn, "completed")

    assert server.request("DELETE", "/api/tokens/ada").status_code == 200
    assert server.get(f"/api/turns?key={made['secret']}", headers=bearer).status_code == 401
    server.stop()
    log = server.log()
    assert turn in log, "the log tells which turn was driven"
    assert "canary" not in log
    assert made["secret"] not in log and "pdt_" not in log and server.token not in log
