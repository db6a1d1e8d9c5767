"""Power cuts and failing disks under the real store, engine and graph.

One recorded run gives a cut at every write and sync of it. After each cut everything that was promised before must be there; after
some, the real store and engine take the file up and finish what was accepted. With `synchronous=OFF` the same check must fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from perdure.errors import StorageError, StorageFull
from perdure.turns import TurnStatus
from tests.crash.embedded import Embedded, embedded
from tests.crash.powerloss import Disk, Fault, RecordingVFS, lay_out

SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))
THOROUGH = "PERDURE_PROOF_KILLS" in os.environ
CUTS = 100_000 if THOROUGH else 400
"""Cuts that are checked against the promises; all of them in the proof."""

TAKEN_UP = 60 if THOROUGH else 20
"""Cuts after which the engine finishes what it finds."""

FAULTS = 40 if THOROUGH else 8
"""Writes and syncs that fail once, for each kind of error."""

DONE = {
    "demo": {"All three are done: alpha, beta, gamma.", "hello there"},
    "parked": {"On the left left, on the right right."},
}


@pytest.fixture(autouse=True)
def quick_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_DEMO_STEP_SECONDS", "0.01")
    monkeypatch.setenv("PERDURE_DEMO_TOKEN_SECONDS", "0.001")


@pytest.fixture
def vfs() -> Iterator[RecordingVFS]:
    recording = RecordingVFS()
    yield recording
    recording.unregister()


QUESTIONS = 2
"""The parked graph asks two, in two nodes: a cut between them leaves one to be asked after the other was answered. A payment is
approved, and a cut while it is at work asks what became of it."""


async def scenario(server: Embedded) -> None:
    """Accept → claim → steps → finish, a second turn, a parked one with its answers, one that is cancelled, and one whose `once`
    call is approved."""
    conversation, turn = await server.send("three at once")
    await server.send("/say hello there", conversation=conversation)
    asked, parked = await server.send("ask me", agent="parked")
    bought, payment = await server.send('/call pay {"amount": 5}', agent="paying")
    _, unwanted = await server.send("four-step job")
    await server.at_rest(turn)
    await server.cancel(unwanted)
    await server.at_rest(parked)
    await server.answer_all(asked, parked)
    await server.at_rest(payment)
    await server.answer_all(bought, payment)
    for each in await server.turns():
        await server.at_rest(each.id)


async def record(vfs: RecordingVFS, folder: Path, synchronous: str) -> None:
    async with embedded(folder / "perdure.db", vfs, synchronous=synchronous) as server:
        await scenario(server)


def broken_promises(disk: Disk, image: Path) -> list[str]:
    """What the image lacks of the marks given before the cut."""
    if not image.exists():
        return [f"the file is gone, with {len(disk.marks)} promises"] if disk.marks else []
    connection = apsw.Connection(str(image))
    try:
        verdict = connection.pragma("integrity_check")
        if verdict != "ok":
            return [f"integrity_check says {verdict}"]
        if not disk.marks:
            return []
        kept = {
            "accepted": {row[0] for row in connection.execute("SELECT id FROM turns")},
            "event": set(connection.execute("SELECT conversation, seq, kind, turn FROM events")),
            "decided": {row[0] for row in connection.execute("SELECT id FROM cards WHERE state = 'decided'")},
            "started": {row[0] for row in connection.execute("SELECT key FROM tool_calls")},
        }
    except apsw.Error as error:
        return [f"{error}, with {len(disk.marks)} promises"]
    finally:
        connection.close()
    return [f"lost: {mark}" for mark in disk.marks if not _kept(mark, kept[mark[0]])]


def _kept(mark: tuple[Any, ...], kept: set[Any]) -> bool:
    """An event as it is; of the others the id: an accepted turn, a decided card, the key of a call that reached the outside."""
    return mark[1:] in kept if mark[0] == "event" else mark[2] in kept


def cuts(vfs: RecordingVFS, luck: Random, count: int) -> set[int]:
    """Places in the log: every sync, what follows it, and a random choice of the rest."""
    places = [place for place, op in enumerate(vfs.log) if op.kind != "mark"]
    return set(luck.sample(places, min(count, len(places)))) | {len(vfs.log) - 1}


def violations(vfs: RecordingVFS, folder: Path, luck: Random, count: int) -> list[str]:
    chosen, disk, found = cuts(vfs, luck, count), Disk(), []
    for place, op in enumerate(vfs.log):
        disk.advance(op)
        if place not in chosen:
            continue
        for name, fate in (("none", None), ("some", luck)):
            image = lay_out(disk.cut(fate), folder / f"{place}-{name}", "perdure.db")
            found += [
                f"cut at {place}, {name} of the unsynced survive: {what}" for what in broken_promises(disk, image)
            ]
    return found


async def test_no_promise_is_lost_at_any_cut(vfs: RecordingVFS, tmp_path: Path) -> None:
    await record(vfs, tmp_path, "FULL")
    assert vfs.count("sync") > 30
    told = [op.mark[0] for op in vfs.log if op.kind == "mark"]
    assert told.count("event") > 20
    assert (told.count("started"), told.count("decided")) == (1, 3)
    assert violations(vfs, tmp_path / "cuts", Random(SEED), CUTS) == []


async def test_with_synchronous_off_the_same_check_fails(vfs: RecordingVFS, tmp_path: Path) -> None:
    await record(vfs, tmp_path, "OFF")
    assert violations(vfs, tmp_path / "cuts", Random(SEED), 40) != []


async def test_after_a_cut_what_was_accepted_is_finished(vfs: RecordingVFS, tmp_path: Path) -> None:
    await record(vfs, tmp_path, "FULL")
    luck, disk = Random(SEED), Disk()
    chosen = cuts(vfs, luck, TAKEN_UP)
    for place, op in enumerate(vfs.log):
        disk.advance(op)
        if place in chosen:
            image = lay_out(disk.cut(luck), tmp_path / f"cut-{place}", "perdure.db")
            await _finish(image, {mark[2] for mark in disk.marks if mark[0] == "accepted"})


async def _finish(image: Path, accepted: set[str]) -> None:
    """The real store opens what is left, also a file that was only half made, and the engine ends every turn."""
    after = RecordingVFS("after-the-cut")
    try:
        async with embedded(image, after) as server:
            found = {turn.id: turn for turn in await server.turns()}
            assert accepted <= set(found)
            for each in found.values():
                rested = await server.at_rest(each.id)
                for _ in range(QUESTIONS):
                    if rested.status is TurnStatus.PARKED:
                        await server.answer_all(each.conversation, each.id)
                        rested = await server.at_rest(each.id)
                assert rested.status in {TurnStatus.COMPLETED, TurnStatus.CANCELLED}, rested
                if rested.status is TurnStatus.COMPLETED and rested.agent == "parked":
                    assert await server.answer_of(each.conversation) in DONE["parked"]
        assert apsw.Connection(str(image)).pragma("integrity_check") == "ok"
    finally:
        after.unregister()


@pytest.mark.parametrize(
    ("on", "error"),
    [
        ("write", "full"),
        ("sync", "io"),
        pytest.param("write", "io", marks=pytest.mark.proof),
        pytest.param("sync", "full", marks=pytest.mark.proof),
    ],
)
async def test_a_disk_that_fails_once_loses_nothing_accepted(tmp_path: Path, on: Any, error: Any) -> None:
    luck = Random(f"{SEED}/{on}/{error}")
    # How many syncs there are depends on how many commits share one: the first of the faults is met in any case.
    places = [luck.randint(1, 8), *(luck.randint(1, 60) for _ in range(FAULTS - 1))]
    faults = [Fault(on, place, error) for place in places]
    for number, fault in enumerate(faults):
        await _with_fault(tmp_path / str(number), fault, number)
    assert any(fault.fired for fault in faults)


async def _with_fault(folder: Path, fault: Fault, number: int) -> None:
    folder.mkdir()
    vfs = RecordingVFS(f"faulty-{number}")
    described = f"{fault.error} at {fault.on} {fault.n} of seed {SEED}"
    try:
        async with embedded(folder / "perdure.db", vfs) as server:
            vfs.fault = fault
            for text in ("three at once", "/say hello there"):
                try:
                    conversation, turn = await server.send(text)
                except (StorageError, StorageFull):
                    continue  # refused, with a clear error: nothing was promised
                rested = await server.at_rest(turn)
                assert rested.status is TurnStatus.COMPLETED, f"{described}: {rested}"
                assert await server.answer_of(conversation) in DONE["demo"], described
    finally:
        vfs.unregister()
    assert apsw.Connection(str(folder / "perdure.db")).pragma("integrity_check") == "ok", described
