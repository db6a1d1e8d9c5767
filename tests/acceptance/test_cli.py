"""The command line against a real server and, without one, against the file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import CommandLine, ServerProcess, environment

ANSWER = "All four steps are done: one, two, three, four."

ASKING = """
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def ask(state: MessagesState):
    said = interrupt({"question": "May I?"})
    return {"messages": [("assistant", f"You said {said}.")]}

graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
"""


@pytest.fixture
def live(running: ServerProcess) -> CommandLine:
    return CommandLine(running.folder)


def test_a_message_is_answered_and_the_answer_alone_goes_to_standard_output(live: CommandLine) -> None:
    done = live("chat", "/say one two three")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "one two three\n"


def test_a_message_may_come_through_a_pipe_and_go_on_in_a_conversation(live: CommandLine) -> None:
    first = json.loads(live("chat", "--json", "/say first").stdout)
    assert first["status"] == "completed" and first["answer"] == "first"
    done = live("chat", "--json", "--conversation", first["conversation"], stdin="/say second")
    second = json.loads(done.stdout)
    assert second["conversation"] == first["conversation"] and second["answer"] == "second"
    shown = live.json("conversations", "show", first["conversation"])
    assert [message["content"] for message in shown["messages"]] == ["/say first", "first", "/say second", "second"]


def test_a_turn_that_fails_is_told_with_exit_code_1(live: CommandLine) -> None:
    done = live("chat", "/loop", PERDURE_DEMO_STEP_SECONDS="0")
    assert done.returncode == 1 and "RECURSION_LIMIT" in done.stderr


def test_lists_show_what_is_there_for_people_and_for_programs(live: CommandLine) -> None:
    said = json.loads(live("chat", "--json", "/say listed").stdout)
    items = live.json("conversations", "list", "--limit", "200")["items"]
    assert said["conversation"] in [item["id"] for item in items]
    turns = live.json("turns", "list", "--status", "completed", "--limit", "200")["items"]
    assert said["turn"] in [turn["id"] for turn in turns]
    table = live("turns", "list", "--limit", "200").stdout
    assert said["turn"] in table and "completed" in table
    assert "1  " in live("turns", "show", said["turn"]).stdout


def test_a_page_names_the_cursor_of_the_next(live: CommandLine) -> None:
    for number in range(3):
        live("chat", f"/say page {number}")
    first = live.json("conversations", "list", "--limit", "2")
    second = live.json("conversations", "list", "--limit", "2", "--cursor", first["next"])
    assert len(first["items"]) == 2 and first["items"][1]["id"] != second["items"][0]["id"]
    assert first["next"] in live("conversations", "list", "--limit", "2").stderr


def test_renaming_exporting_and_deleting(live: CommandLine, tmp_path: Path) -> None:
    said = json.loads(live("chat", "--json", "/say keep me").stdout)["conversation"]
    assert live("conversations", "rename", said, "A better name").returncode == 0
    assert live.json("conversations", "show", said)["title"] == "A better name"
    markdown = live("export", said).stdout
    assert "A better name" in markdown and "keep me" in markdown
    assert live("export", said, "--format", "jsonl", "-o", str(tmp_path / "out.jsonl")).returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) >= 3 and lines[0]["parent"] is None
    assert live("conversations", "delete", said).returncode == 1  # nobody to ask, no --yes
    assert live("conversations", "delete", said, "--yes").returncode == 0
    gone = live("conversations", "show", said)
    assert gone.returncode == 1 and "Traceback" not in gone.stderr


def test_agents_are_listed_and_one_of_the_server_itself_is_not_forgotten(live: CommandLine) -> None:
    (agent,) = live.json("agents")["items"]
    assert (agent["reach"], agent["default"]) == ("reachable", True)
    assert live.json("agents", "list") == live.json("agents")
    assert agent["name"] in live("agents").stdout
    for words in (("forget", agent["name"]), ("forget", agent["name"], "--yes"), ("forget", "nobody", "--yes")):
        refused = live("agents", *words)
        assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "perdure.toml" in live("agents", "forget", agent["name"], "--yes").stderr


def test_unknown_ids_are_told_in_a_sentence(live: CommandLine) -> None:
    for arguments in (("turns", "show", "x"), ("turns", "cancel", "x"), ("turns", "resume", "x"), ("export", "x")):
        done = live(*arguments)
        assert done.returncode == 1 and done.stderr.strip() and "Traceback" not in done.stderr, arguments


def test_a_failed_turn_is_resumed_and_a_completed_one_is_not(live: CommandLine, running: ServerProcess) -> None:
    failed = json.loads(live("chat", "--json", "/loop").stdout)
    assert failed["error"]["code"] == "RECURSION_LIMIT"
    assert live("turns", "resume", failed["turn"]).returncode == 0
    again = running.until(failed["turn"], "failed")
    assert len(again["attempts"]) == 2
    assert live("turns", "redrive", failed["turn"]).returncode == 0
    fine = json.loads(live("chat", "--json", "/say fine").stdout)
    refused = live("turns", "redrive", fine["turn"])
    assert refused.returncode == 1 and "completed" in refused.stdout


def test_a_running_turn_is_cancelled(live: CommandLine, running: ServerProcess) -> None:
    accepted = running.say("/say " + "word " * 50_000)
    assert live("turns", "cancel", accepted["turn"]).returncode == 0
    assert running.until(accepted["turn"], "cancelled", "completed")["status"] == "cancelled"


def test_the_doctor_finds_a_healthy_server_well(live: CommandLine, running: ServerProcess) -> None:
    report = live.json("doctor")
    assert report["well"]
    assert any(running.address in finding["message"] for finding in report["findings"])


def test_chat_shows_an_answer_across_kill_and_restart_of_the_server(server: ServerProcess) -> None:
    server.start(PERDURE_FAILPOINTS="tool_call.before:pause@3")
    chat = subprocess.Popen(
        [sys.executable, "-m", "perdure", "chat", "four-step job"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PERDURE_DATABASE=str(server.database)),
    )
    server.until_paused()
    server.kill()
    server.start()
    out, notes = chat.communicate(timeout=120)
    assert chat.returncode == 0, notes
    assert out == f"{ANSWER}\n"
    assert "reconnecting" in notes and "resumed after a crash" in notes
    assert notes.count('slow_step(label="four")') == 1


HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from perdure.cli import main
main()
"""
"""A shell's background command, and all it starts, ignores what Ctrl-C sends; this one does not."""


def test_leaving_a_chat_does_not_end_the_turn(server: ServerProcess) -> None:
    server.start(PERDURE_DEMO_STEP_SECONDS="600")
    chat = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C, "chat", "four-step job"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(PERDURE_DATABASE=str(server.database)),
    )
    assert chat.stdout is not None
    assert "slow_step" in chat.stdout.readline(), "the call of step one is narrated"
    chat.send_signal(signal.SIGINT)
    told, _ = chat.communicate(timeout=120)
    assert chat.returncode == 130 and "The turn goes on" in told and "Traceback" not in told
    (turn,) = server.get("/api/turns").json()["items"]
    assert turn["status"] == "running"


def test_a_question_of_a_graph_is_told_and_answered(server: ServerProcess, perdure: CommandLine) -> None:
    (server.folder / "asking.py").write_text(ASKING)
    (server.folder / "langgraph.json").write_text('{"graphs": {"asker": "./asking.py:graph"}, "dependencies": ["."]}')
    server.start()
    asked = perdure("chat", "go")
    assert asked.returncode == 1 and "May I?" in asked.stderr and "parked" in asked.stderr
    turn = perdure.json("turns", "list", "--status", "parked")["items"][0]["id"]
    shown = perdure("turns", "show", turn)
    card = perdure.json("turns", "show", turn)["cards"][0]
    question = card["interrupt_id"]
    assert f"perdure approvals answer {card['id']}" in shown.stderr and "May I?" in shown.stdout
    assert perdure("turns", "answer", turn, question, "yes").returncode == 0
    done = server.until(turn, "completed")
    assert server.answer_of(done["conversation"]) == "You said yes."
    assert perdure("turns", "answer", turn, question, "no").returncode == 1


# -- without a server -------------------------------------------------------------------------------------------------


def test_without_a_server_reads_open_the_file_and_writes_name_the_command(
    server: ServerProcess, perdure: CommandLine
) -> None:
    server.start()
    said = json.loads(perdure("chat", "--json", "/say remember").stdout)
    server.stop()
    before = server.database.read_bytes()
    shown = perdure.json("conversations", "show", said["conversation"])
    assert [message["content"] for message in shown["messages"]] == ["/say remember", "remember"]
    assert perdure.json("turns", "show", said["turn"])["status"] == "completed"
    assert perdure.json("conversations", "list")["items"][0]["id"] == said["conversation"]
    assert "remember" in perdure("export", said["conversation"]).stdout
    assert server.database.read_bytes() == before
    refused = perdure("chat", "hello")
    assert refused.returncode == 1 and "perdure serve" in refused.stderr


def test_reads_of_a_damaged_file_say_so_and_do_not_end_well(server: ServerProcess, perdure: CommandLine) -> None:
    server.start()
    said = json.loads(perdure("chat", "--json", "/say remember").stdout)
    server.stop()
    content = bytearray(server.database.read_bytes())
    start = len(content) // 2 // 1_024 * 1_024
    content[start : start + 30_720] = b"\xaa" * 30_720
    server.database.write_bytes(content)
    reads = [("turns", "show", said["turn"]), ("conversations", "list")]
    for arguments in reads:
        done = perdure(*arguments)
        assert done.returncode == 1, (arguments, done.stdout)
        assert "is damaged" in done.stderr and "perdure restore" in done.stderr, arguments
        assert "Traceback" not in done.stderr


def test_a_backup_of_a_running_server_is_whole_and_restores(server: ServerProcess, perdure: CommandLine) -> None:
    server.start()
    kept = json.loads(perdure("chat", "--json", "/say kept").stdout)["conversation"]
    copy = server.folder / "copy.db"
    report = perdure.json("backup", str(copy))
    assert report["bytes"] == copy.stat().st_size > 0
    assert perdure("backup", str(copy)).returncode == 1  # never over an existing file
    lost = json.loads(perdure("chat", "--json", "/say lost").stdout)["conversation"]
    in_use = perdure("restore", str(copy))
    assert in_use.returncode == 78 and "in use" in in_use.stderr
    server.stop()
    damaged = bytearray(copy.read_bytes())
    damaged[4_096:12_288] = b"\xff" * 8_192
    (server.folder / "damaged.db").write_bytes(damaged)
    assert perdure("restore", str(server.folder / "damaged.db")).returncode == 78
    restored = perdure("restore", str(copy))
    assert restored.returncode == 0 and "kept as" in restored.stderr
    found = [item["id"] for item in perdure.json("conversations", "list")["items"]]
    assert kept in found and lost not in found
    server.start()
    assert json.loads(perdure("chat", "--json", "--conversation", kept, "/say on").stdout)["answer"] == "on"


def test_pruning_counts_first_and_leaves_a_running_servers_file_alone(
    server: ServerProcess, perdure: CommandLine
) -> None:
    server.start()
    perdure("chat", "/say old")
    assert perdure("prune").returncode == 1  # how old is not said
    assert perdure.json("prune", "--dry-run", "--retention-days", "0.0000001")["dry_run"]
    assert "serves" in perdure("prune", "--retention-days", "1").stderr
    server.stop()
    counted = perdure.json("prune", "--dry-run", "--retention-days", "0.0000001")["rows"]
    removed = perdure.json("prune", "--retention-days", "0.0000001")["rows"]
    assert counted["checkpoints"] == removed["checkpoints"] > 0
    assert not perdure.json("prune", "--dry-run", "--retention-days", "0.0000001")["rows"].get("checkpoints")


def test_the_doctor_names_who_has_the_port(running: ServerProcess, perdure: CommandLine) -> None:
    port = running.address.rpartition(":")[2]
    done = perdure("doctor", "--json", "--port", port)
    wrong = [finding for finding in json.loads(done.stdout)["findings"] if not finding["well"]]
    assert done.returncode == 1 and str(running.pid) in wrong[0]["message"] and "--port" in wrong[0]["mend"]


def test_the_demo_proves_what_it_says(tmp_path: Path) -> None:
    perdure = CommandLine(tmp_path)
    done = perdure("demo", "--json", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    proof = json.loads(done.stdout)
    assert proof["ok"] and proof["signal"] == "SIGKILL" and proof["killed_pid"] != proof["restarted_pid"]
    assert proof["answer"] == ANSWER and proof["status"] == "completed" and proof["attempts"] == 2
    assert {step: proof["effects"][step] for step in ("one", "two", "four")} == {"one": 1, "two": 1, "four": 1}
    assert proof["effects"]["three"] in {1, 2} and proof["starts_of_cut_step"] == 2
    assert not list(tmp_path.glob("perdure-demo-*"))
