"""People decide, over a real server: gates, edits, denials, races, restarts, busy conversations, tokens, the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import LIMIT_SECONDS, CommandLine, ServerProcess, environment, eventually

RESTART = "restart the service"


@pytest.fixture
def live(running: ServerProcess) -> CommandLine:
    return CommandLine(running.folder)


def restarts(server: ServerProcess, turn: str) -> list[dict[str, Any]]:
    """The turn's own calls of `restart_service`, as its ledger has them."""
    return [call for call in server.turn(turn)["calls"] if call["name"] == "restart_service"]


def effects_since(server: ServerProcess, before: int) -> list[tuple[str, dict[str, Any]]]:
    return server.effect_lines()[before:]


# -- gates ------------------------------------------------------------------------------------------------------------


def test_a_gated_call_waits_and_runs_once_with_the_arguments_a_person_wrote(running: ServerProcess) -> None:
    before = len(running.effect_lines())
    accepted = running.say(RESTART)
    (card,) = running.waiting(accepted["turn"])
    assert (card["kind"], card["tool"], card["arguments"], card["effect_class"]) == (
        "approval",
        "restart_service",
        {"name": "web"},
        "once",
    )
    assert effects_since(running, before) == [], "nothing ran before the decision"
    refused = running.post(f"/api/approvals/{card['id']}", {"decision": "approve", "arguments": {"nmae": "db"}})
    assert refused.status_code == 400 and "nmae" in refused.json()["message"]
    decided = running.post(f"/api/approvals/{card['id']}", {"decision": "approve", "arguments": {"name": "db"}})
    assert (decided.status_code, decided.json()["turn_status"]) == (202, "queued")
    turn = running.until(accepted["turn"], "completed", "failed")
    assert turn["status"] == "completed", turn
    assert effects_since(running, before) == [("restart_service", {"name": "db"})]
    (call,) = restarts(running, accepted["turn"])
    assert (call["arguments"], call["state"], call["starts"]) == ({"name": "db"}, "done", 1)
    entry = running.get("/api/audit?limit=1").json()["items"][0]
    assert (entry["by"], entry["action"], entry["card"]) == ("admin", "decide", card["id"])


def test_a_denial_with_its_note_reaches_the_model_and_nothing_runs(running: ServerProcess) -> None:
    before = len(running.effect_lines())
    accepted = running.say(RESTART)
    (card,) = running.waiting(accepted["turn"])
    running.post(f"/api/approvals/{card['id']}", {"decision": "deny", "note": "Not during business hours."})
    assert running.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert effects_since(running, before) == []
    (told,) = [each for each in running.messages(accepted["conversation"]) if each["role"] == "tool"]
    assert "Not during business hours." in told["content"] and told["status"] == "denied"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_gated_calls_are_decided_in_any_order_beside_one_that_is_not_gated(
    running: ServerProcess, order: tuple[int, int]
) -> None:
    before = len(running.effect_lines())
    accepted = running.say("two services")
    cards = sorted(running.waiting(accepted["turn"]), key=lambda card: str(card["arguments"]["name"]))
    assert [card["arguments"] for card in cards] == [{"name": "db"}, {"name": "web"}]
    first, last = (cards[place]["id"] for place in order)
    early = running.post(f"/api/approvals/{first}", {"decision": "approve"})
    assert (early.status_code, early.json()["turn_status"]) == (200, "parked")
    assert running.turn(accepted["turn"])["status"] == "parked"
    assert running.post(f"/api/approvals/{last}", {"decision": "approve"}).status_code == 202
    assert running.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    ran = Counter((tool, args.get("name")) for tool, args in effects_since(running, before))
    assert ran[("restart_service", "web")] == ran[("restart_service", "db")] == 1
    assert sum(count for (tool, _), count in ran.items() if tool == "read_status") == 1


def test_what_waits_is_told_on_the_stream_with_its_arguments(running: ServerProcess) -> None:
    accepted = running.say(RESTART)
    (card,) = running.waiting(accepted["turn"])
    running.post(f"/api/approvals/{card['id']}", {"decision": "deny", "note": "no"})
    running.until(accepted["turn"], "completed")
    told = [
        json.loads(line.removeprefix("data: "))
        for line in running.get(f"/api/chat?conversation={accepted['conversation']}&after=0").text.splitlines()
        if line.startswith("data: ") and '"card"' in line
    ]
    assert [each["state"] for each in told] == ["opened", "decided"]
    assert {each["card"] for each in told} == {card["id"]}
    assert (told[0]["tool"], told[0]["arguments"], told[0]["digest"]) == (
        "restart_service",
        {"name": "web"},
        card["digest"],
    )
    assert (told[1]["decision"], told[1]["decided_by"]) == ("deny", "admin")


def test_a_gate_is_decided_by_the_chat_route_too(running: ServerProcess) -> None:
    accepted = running.say(RESTART)
    (card,) = running.waiting(accepted["turn"])
    body = {"conversation": accepted["conversation"], "resume": {card["interrupt_id"]: True}}
    refused = running.post("/api/chat", body)
    assert refused.status_code == 400 and card["interrupt_id"] in refused.json()["message"]
    body["resume"] = {card["interrupt_id"]: {"decision": "approve"}}
    keyed = {"Idempotency-Key": "decide-by-chat"}
    first = running.post("/api/chat", body, headers=keyed)
    again = running.post("/api/chat", body, headers=keyed)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["turn"] == again.json()["turn"] == accepted["turn"]
    assert running.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert len(restarts(running, accepted["turn"])) == 1


# -- the first decision counts ----------------------------------------------------------------------------------------


async def test_of_fifty_races_each_has_exactly_one_winner_and_every_loser_is_told_who(running: ServerProcess) -> None:
    names = [f"racer-{number}" for number in range(8)]
    secrets = [running.post("/api/tokens", {"name": name, "role": "operator"}).json()["secret"] for name in names]
    turns = [running.say(RESTART)["turn"] for _ in range(50)]
    cards = [running.waiting(turn)[0]["id"] for turn in turns]
    luck = random.Random(7)
    async with httpx2.AsyncClient(base_url=running.address, trust_env=False, timeout=60) as http:
        for card in cards:
            racers = luck.sample(range(8), luck.randint(2, 8))
            replies = await asyncio.gather(*(_decide(http, secrets[racer], card, racer) for racer in racers))
            won = [racer for racer, reply in zip(racers, replies, strict=True) if reply.status_code == 202]
            assert len(won) == 1, [reply.text for reply in replies]
            for reply in replies:
                if reply.status_code != 202:
                    assert (reply.status_code, reply.json()["code"]) == (409, "APPROVAL_DECIDED")
                    assert reply.json()["decided_by"] == names[won[0]]
    for turn in turns:
        assert running.until(turn, "completed", "failed")["status"] == "completed"
        assert len(restarts(running, turn)) <= 1


async def _decide(http: httpx2.AsyncClient, secret: str, card: str, racer: int) -> httpx2.Response:
    body = {"decision": "approve"} if racer % 2 else {"decision": "deny", "note": f"racer {racer}"}
    headers = {"Authorization": f"Bearer {secret}"}
    return await http.post(f"/api/approvals/{card}", json=body, headers=headers)


# -- what a parked turn survives --------------------------------------------------------------------------------------


def test_a_parked_turn_survives_kill_9_and_is_decided_after_the_restart(server: ServerProcess) -> None:
    server.start()
    accepted = server.say(RESTART)
    (card,) = server.waiting(accepted["turn"])
    server.kill()
    server.start()
    (again,) = server.waiting(accepted["turn"])
    assert again == card
    assert server.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).status_code == 202
    assert server.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert server.effect_lines() == [("restart_service", {"name": "web"})]


def test_a_decision_answered_just_before_kill_9_counts_after_it(server: ServerProcess) -> None:
    server.start(PERDURE_DEMO_EFFECT_PAUSE_SECONDS="0")
    accepted = server.say(RESTART)
    (card,) = server.waiting(accepted["turn"])
    assert server.post(f"/api/approvals/{card['id']}", {"decision": "deny", "note": "no"}).status_code == 202
    server.kill()
    server.start()
    assert server.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert server.effect_lines() == []
    assert server.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).status_code == 409


def test_a_once_call_cut_between_effect_and_record_becomes_a_card_and_never_runs_twice(server: ServerProcess) -> None:
    server.start(PERDURE_DEMO_EFFECT_PAUSE_SECONDS="600")
    accepted = server.say("charge the card")
    eventually(server.effect_lines, "the card was charged")
    server.kill()
    server.start()
    (card,) = server.waiting(accepted["turn"])
    assert (card["kind"], card["tool"], card["arguments"]) == ("uncertain", "charge_card", {"amount": 5})
    assert card["why"] and card["key"]
    (call,) = server.turn(accepted["turn"])["calls"]
    assert (call["state"], call["starts"]) == ("unknown", 1)
    wrong = server.post(f"/api/approvals/{card['id']}", {"decision": "approve"})
    assert wrong.status_code == 400 and "`happened` or `retry` or `give_up`" in wrong.json()["message"]
    said = CommandLine(server.folder)("approvals", "happened", card["id"][:6], "--result", "charged 5")
    assert said.returncode == 0, said.stderr
    assert server.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert server.effect_lines() == [("charge_card", {"amount": 5})]
    (told,) = [each for each in server.messages(accepted["conversation"]) if each["role"] == "tool"]
    assert "charged 5" in told["content"]


# -- a busy conversation ----------------------------------------------------------------------------------------------


def test_a_message_to_a_parked_conversation_is_refused_with_the_card_or_waits(running: ServerProcess) -> None:
    accepted = running.say(RESTART)
    conversation = accepted["conversation"]
    (card,) = running.waiting(accepted["turn"])
    for more in ({}, {"when_busy": "reject"}, {"when_busy": "interrupt"}):
        refused = running.post("/api/chat", {"message": "hello", "conversation": conversation, **more})
        assert (refused.status_code, refused.json()["code"]) == (409, "TURN_IN_PROGRESS")
        assert refused.json()["pending"] == [card["id"]] and refused.json()["turn"] == accepted["turn"]
    waits = running.say("/say later", conversation=conversation, when_busy="enqueue")
    assert waits["status"] == "waiting"
    running.post(f"/api/approvals/{card['id']}", {"decision": "approve"})
    assert running.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert running.until(waits["turn"], "completed", "failed")["status"] == "completed"
    assert running.answer_of(conversation) == "later"


def test_a_message_interrupts_a_parked_turn_when_it_discards_what_waits(running: ServerProcess) -> None:
    before = len(running.effect_lines())
    accepted = running.say(RESTART)
    (card,) = running.waiting(accepted["turn"])
    more = {"conversation": accepted["conversation"], "when_busy": "interrupt", "discard_pending": True}
    instead = running.say("/say instead", **more)
    assert running.until(instead["turn"], "completed", "failed")["status"] == "completed"
    assert running.turn(accepted["turn"])["status"] == "cancelled"
    assert running.get(f"/api/approvals/{card['id']}").json()["state"] == "closed"
    assert running.answer_of(accepted["conversation"]) == "instead"
    assert effects_since(running, before) == []


def test_a_message_interrupts_a_running_turn(running: ServerProcess) -> None:
    accepted = running.say("/say " + "word " * 50_000)
    eventually(lambda: running.turn(accepted["turn"])["status"] == "running", "it runs")
    instead = running.say("/say instead", conversation=accepted["conversation"], when_busy="interrupt")
    assert running.until(accepted["turn"], "cancelled", "completed")["status"] == "cancelled"
    assert running.until(instead["turn"], "completed", "failed")["status"] == "completed"


def test_a_cancel_closes_the_cards_of_a_parked_turn_and_the_conversation_goes_on(running: ServerProcess) -> None:
    before = len(running.effect_lines())
    accepted = running.say("two services")
    cards = running.waiting(accepted["turn"])
    assert running.post(f"/api/turns/{accepted['turn']}/cancel").status_code == 202
    assert running.until(accepted["turn"], "cancelled", "failed")["status"] == "cancelled"
    for card in cards:
        assert running.get(f"/api/approvals/{card['id']}").json()["state"] == "closed"
        late = running.post(f"/api/approvals/{card['id']}", {"decision": "approve"})
        assert (late.status_code, late.json()["code"]) == (409, "APPROVAL_DECIDED")
    after = running.say("/say on", conversation=accepted["conversation"])
    assert running.until(after["turn"], "completed", "failed")["status"] == "completed"
    messages = running.messages(accepted["conversation"])
    asked = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    assert sorted(asked) == sorted(each["tool_call_id"] for each in messages if each["role"] == "tool")
    assert [tool for tool, _ in effects_since(running, before) if tool == "restart_service"] == []


# -- who --------------------------------------------------------------------------------------------------------------


def test_a_users_things_are_its_own_an_operator_decides_and_a_revoked_token_is_out_at_once(
    running: ServerProcess, live: CommandLine
) -> None:
    secrets = {
        name: live("tokens", "create", name, "--role", role).stdout.strip()
        for name, role in (("una", "user"), ("udo", "user"), ("opal", "operator"))
    }
    accepted = running.post("/api/chat", {"message": RESTART}, secret=secrets["una"]).json()
    (card,) = running.waiting(accepted["turn"])
    for path in (f"/api/turns/{accepted['turn']}", f"/api/approvals/{card['id']}"):
        assert running.get(path, secret=secrets["udo"]).status_code == 404
        assert running.get(path, secret=secrets["una"]).status_code == 200
    stolen = running.post(f"/api/approvals/{card['id']}", {"decision": "approve"}, secret=secrets["udo"])
    assert (stolen.status_code, stolen.json()["code"], stolen.json()["pending"]) == (404, "APPROVAL_UNKNOWN", [])
    opened, ended = threading.Event(), threading.Event()

    def watch() -> None:
        with httpx2.Client(trust_env=False, timeout=60) as http:
            headers = {"Authorization": f"Bearer {secrets['una']}"}
            url = f"{running.address}/api/chat?conversation={accepted['conversation']}&follow=1"
            try:
                with http.stream("GET", url, headers=headers) as stream:
                    for _ in stream.iter_raw():
                        opened.set()
            except httpx2.TransportError:
                ended.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert opened.wait(LIMIT_SECONDS)
    assert live("tokens", "revoke", "una").returncode == 0
    assert running.get("/api/me", secret=secrets["una"]).status_code == 401
    watcher.join(LIMIT_SECONDS)
    assert ended.is_set(), "its stream was cut"
    assert running.post(f"/api/approvals/{card['id']}", {"decision": "deny"}, secret=secrets["opal"]).status_code == 202
    assert running.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    decided = running.get(f"/api/approvals/{card['id']}").json()
    assert (decided["decision"], decided["decided_by"]) == ("deny", "opal")
    assert live("tokens", "create", "una").returncode == 1, "a name is used once"
    listed = {each["name"]: each for each in live.json("tokens", "list")["items"]}
    assert listed["una"]["revoked_at"] and not listed["udo"]["revoked_at"]
    for secret in secrets.values():
        assert secret not in running.log() and secret not in json.dumps(listed)
    assert "opal" in live("audit").stdout


def test_a_command_speaks_as_the_token_it_is_given(running: ServerProcess, live: CommandLine) -> None:
    secret = live("tokens", "create", "ines").stdout.strip()
    said = json.loads(live("chat", "--json", "/say mine", PERDURE_TOKEN=secret).stdout)
    assert running.turn(said["turn"])["owner"] == "ines"
    refused = live("tokens", "list", PERDURE_TOKEN=secret)
    assert refused.returncode == 1 and "PERDURE_TOKEN" in refused.stderr


# -- the terminal -----------------------------------------------------------------------------------------------------


def test_what_waits_is_listed_shown_and_approved_from_the_command_line(
    running: ServerProcess, live: CommandLine
) -> None:
    before = len(running.effect_lines())
    parked = live("chat", "--json", RESTART)
    told = json.loads(parked.stdout)
    assert parked.returncode == 1 and told["status"] == "parked"
    (card,) = told["cards"]
    listed = live("approvals", "list").stdout
    assert card["id"] in listed and 'restart_service {"name": "web"}' in listed
    shown = live("approvals", "show", card["id"][:8])
    assert '{"name": "web"}' in shown.stdout and f"perdure approvals approve {card['id']}" in shown.stderr
    turn = live("turns", "show", told["turn"])
    assert "parked" in turn.stdout and f"perdure approvals approve {card['id']}" in turn.stderr
    assert told["turn"] in live("turns", "list", "--status", "parked", "--limit", "200").stdout
    row = next(line for line in live("conversations", "list").stdout.splitlines() if told["conversation"] in line)
    assert "parked" in row
    wrong = live("approvals", "approve", card["id"], "--arguments", "name=db")
    assert wrong.returncode == 1 and "--arguments" in wrong.stderr and "Traceback" not in wrong.stderr
    done = live("approvals", "approve", card["id"][:8], "--arguments", '{"name": "db"}', "--note", "db it is")
    assert done.returncode == 0, done.stderr
    assert 'restart_service runs with exactly {"name": "db"}' in done.stderr
    assert running.until(told["turn"], "completed", "failed")["status"] == "completed"
    assert effects_since(running, before) == [("restart_service", {"name": "db"})]
    calls = live("turns", "show", told["turn"]).stdout
    assert 'restart_service {"name": "db"}' in calls and "done" in calls
    again = live("approvals", "deny", card["id"])
    assert again.returncode == 1 and "admin" in again.stderr and "Traceback" not in again.stderr
    assert "db it is" in live("approvals", "show", card["id"]).stdout


def test_a_call_is_denied_from_the_command_line_with_a_note(running: ServerProcess, live: CommandLine) -> None:
    parked = json.loads(live("chat", "--json", RESTART).stdout)
    (card,) = parked["cards"]
    assert live("approvals", "deny", card["id"], "--note", "on holiday").returncode == 0
    assert running.until(parked["turn"], "completed", "failed")["status"] == "completed"
    assert any("on holiday" in each["content"] for each in running.messages(parked["conversation"]))
    unknown = live("approvals", "deny", "no-such-card")
    assert unknown.returncode == 1 and "no-such-card" in unknown.stderr


def test_what_waits_is_readable_without_a_server_and_deciding_names_the_command(server: ServerProcess) -> None:
    perdure = CommandLine(server.folder)
    server.start()
    accepted = server.say(RESTART)
    (card,) = server.waiting(accepted["turn"])
    perdure("tokens", "create", "ann")
    assert server.stop() == 0
    assert card["id"] in perdure("approvals", "list").stdout
    assert perdure.json("approvals", "show", card["id"])["arguments"] == {"name": "web"}
    assert "ann" in perdure("tokens", "list").stdout
    assert "token_create" in perdure("audit").stdout
    refused = perdure("approvals", "approve", card["id"])
    assert refused.returncode == 1 and "perdure serve" in refused.stderr


class Terminal:
    """A program in a terminal of its own, and a person who reads and types."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perdure", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(PERDURE_DATABASE=str(folder / "perdure.db"), TERM="dumb"),
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str) -> None:
        """Reads on until the text was shown; what was read is behind us then."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"never shown: {text!r}; shown: {self.seen}"
            self._read(0.2)
        self.seen = self.seen.partition(text)[2]

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65_536)
        except OSError:
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def type(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def end(self) -> int:
        while self._read(LIMIT_SECONDS):
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                break
        return self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_SECONDS)
        os.close(self.master)


def test_a_person_edits_and_approves_in_the_chat_and_watches_the_turn_go_on(running: ServerProcess) -> None:
    before = len(running.effect_lines())
    terminal = Terminal(running.folder, "chat", RESTART)
    try:
        terminal.until("wants to call restart_service")
        terminal.until('{"name": "web"}')
        terminal.until("approve [a]")
        terminal.type("e")
        terminal.until("arguments")
        terminal.type('{"name": "cache"}')
        terminal.until('exactly {"name": "cache"}')
        terminal.until("run it?")
        terminal.type("y")
        terminal.until("approve by admin")
        assert terminal.end() == 0, terminal.seen
        assert terminal.seen.strip(), "the answer was shown"
    finally:
        terminal.close()
    assert effects_since(running, before) == [("restart_service", {"name": "cache"})]


def test_a_person_leaves_a_card_for_later_and_is_told_how_to_decide(running: ServerProcess) -> None:
    terminal = Terminal(running.folder, "chat", RESTART)
    try:
        terminal.until("approve [a]")
        terminal.type("")
        terminal.until("perdure approvals approve")
        assert terminal.end() == 1
    finally:
        terminal.close()
