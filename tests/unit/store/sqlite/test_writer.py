from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

from perdure.errors import StorageError, StorageFull
from perdure.store.sqlite import writer as writer_module
from perdure.store.sqlite.database import PAGE_BYTES, Connection, open_reader, open_writer, prepare_place, scalar
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.writer import MAX_BATCH, TRUNCATE_PAGES, Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "perdure.db"
    prepare_place(path)
    connection = open_writer(path)
    connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY, filler BLOB)")
    connection.execute("PRAGMA application_id = 0x50524455")
    connection.close()
    return path


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[Writer]:
    writer = Writer(open_writer(path), asyncio.get_running_loop())
    yield writer
    await writer.close()


def insert(number: int, size: int = 0) -> Callable[[apsw.Connection], int]:
    def transaction(connection: apsw.Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?, zeroblob(?))", (number, size))
        return number

    return transaction


def stored(path: Path) -> list[int]:
    reader = open_reader(path)
    try:
        return [row[0] for row in reader.execute("SELECT number FROM numbers ORDER BY number")]
    finally:
        reader.close()


class Held:
    """Keeps the writer busy, so that what is submitted meanwhile waits together."""

    def __init__(self, writer: Writer) -> None:
        self._busy, self._free = threading.Event(), threading.Event()
        self.future = writer.submit(self._hold)

    def _hold(self, connection: apsw.Connection) -> None:
        self._busy.set()
        assert self._free.wait(30)

    async def taken(self) -> Held:
        await asyncio.to_thread(self._busy.wait, 30)
        return self

    def release(self) -> None:
        self._free.set()


async def test_a_result_is_committed_when_it_is_told(writer: Writer, path: Path) -> None:
    assert await writer.submit(insert(1)) == 1
    assert stored(path) == [1]


async def test_what_waits_together_is_committed_once(writer: Writer, path: Path) -> None:
    held = await Held(writer).taken()
    futures = [writer.submit(insert(number)) for number in range(50)]
    held.release()
    await asyncio.gather(*futures)
    assert stored(path) == list(range(50))
    assert writer.counts.commits == 2


async def test_a_batch_has_a_limit(writer: Writer) -> None:
    held = await Held(writer).taken()
    futures = [writer.submit(insert(number)) for number in range(2 * MAX_BATCH)]
    held.release()
    await asyncio.gather(*futures)
    assert writer.counts.commits == 3


async def test_a_failing_transaction_undoes_itself_alone(writer: Writer, path: Path) -> None:
    def half(connection: apsw.Connection) -> None:
        insert(100)(connection)
        raise RuntimeError("half way")

    held = await Held(writer).taken()
    before, broken, after = writer.submit(insert(1)), writer.submit(half), writer.submit(insert(2))
    held.release()
    outcomes = await asyncio.gather(before, broken, after, return_exceptions=True)
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], RuntimeError)
    assert outcomes[2] == 2
    assert stored(path) == [1, 2]


async def test_hooks_run_in_commit_order_before_any_caller_wakes(writer: Writer) -> None:
    order: list[str] = []

    async def caller(name: str, number: int) -> None:
        await writer.submit(insert(number), committed=lambda _: order.append(f"hook {name}"))
        order.append(f"woke {name}")

    held = await Held(writer).taken()
    callers = [asyncio.ensure_future(caller(name, number)) for number, name in enumerate("abc")]
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(*callers)
    assert order == ["hook a", "hook b", "hook c", "woke a", "woke b", "woke c"]


async def test_a_refusal_is_told_before_anything_enqueued_later_runs(writer: Writer) -> None:
    refused: list[BaseException] = []
    seen: list[int] = []

    def broken(connection: apsw.Connection) -> None:
        raise RuntimeError("broken")

    held = await Held(writer).taken()
    first = writer.submit(broken, refused=refused.append)
    second = writer.submit(lambda connection: seen.append(len(refused)))
    held.release()
    await asyncio.gather(first, second, return_exceptions=True)
    assert seen == [1]


async def test_a_failing_hook_reaches_the_caller_and_the_commit_stays(writer: Writer, path: Path) -> None:
    def hook(result: int) -> None:
        raise RuntimeError("hook")

    with pytest.raises(RuntimeError, match="hook"):
        await writer.submit(insert(1), committed=hook)
    assert stored(path) == [1]


async def test_a_caller_that_gave_up_does_not_undo_its_write(writer: Writer, path: Path) -> None:
    hooked: list[int] = []
    held = await Held(writer).taken()
    future = writer.submit(insert(1), committed=hooked.append)
    future.cancel()
    held.release()
    await writer.settle()
    assert (stored(path), hooked) == ([1], [1])


async def test_another_thread_writes_and_waits(writer: Writer, path: Path) -> None:
    assert await asyncio.to_thread(writer.call, insert(7)) == 7
    assert stored(path) == [7]

    def broken(connection: apsw.Connection) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        await asyncio.to_thread(writer.call, broken)


async def test_a_full_disk_fails_what_it_hit_and_nothing_after_it(writer: Writer, path: Path) -> None:
    """SQLite rolls the whole transaction back by itself: what ran in it before is not committed either."""

    def limit(connection: apsw.Connection) -> None:
        pages = scalar(connection, "PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages + 20}")

    await writer.submit(limit)
    held = await Held(writer).taken()
    futures = [writer.submit(insert(1)), writer.submit(insert(2, 1_000_000)), writer.submit(insert(3))]
    held.release()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(outcomes[1], StorageFull)
    assert await writer.submit(insert(4)) == 4
    told = {number for number in (1, 3, 4) if number in [*outcomes, 4]}
    assert set(stored(path)) == told


class Unsynced(apsw.VFS):
    """Passes everything on, and fails the next sync of the log when told to."""

    def __init__(self) -> None:
        self.failing = False
        super().__init__("perdure-unsynced", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return UnsyncedFile(self, name, flags)


class UnsyncedFile(apsw.VFSFile):
    def __init__(self, vfs: Unsynced, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        if self._vfs.failing:
            raise apsw.IOError
        super().xSync(flags)


async def test_a_commit_that_fails_fails_every_member_and_leaves_nothing_of_it(path: Path) -> None:
    vfs = Unsynced()
    writer = Writer(open_writer(path, vfs="perdure-unsynced"), asyncio.get_running_loop())
    refused: list[BaseException] = []
    held = await Held(writer).taken()
    futures = [writer.submit(insert(number), refused=refused.append) for number in range(3)]
    vfs.failing = True
    held.release()
    outcomes = await asyncio.gather(held.future, *futures, return_exceptions=True)
    failed = [outcome for outcome in outcomes[1:] if isinstance(outcome, StorageError)]
    assert len(failed) == len(refused) == 3
    vfs.failing = False
    assert await writer.submit(insert(9)) == 9
    await writer.close()
    assert stored(path) == [9]


async def test_closing_commits_what_is_queued_and_empties_the_log(path: Path) -> None:
    writer = Writer(open_writer(path), asyncio.get_running_loop())
    futures = [writer.submit(insert(number)) for number in range(10)]
    await writer.close()
    await asyncio.gather(*futures)
    assert stored(path) == list(range(10))
    log = path.with_name(f"{path.name}-wal")
    assert not log.exists() or log.stat().st_size == 0
    with pytest.raises(StorageError, match="closed"):
        writer.submit(insert(11))
    await writer.close()


async def test_a_long_log_is_emptied_once_the_writer_is_idle(writer: Writer, path: Path) -> None:
    await writer.submit(insert(1, TRUNCATE_PAGES * PAGE_BYTES))
    log = path.with_name(f"{path.name}-wal")
    async with asyncio.timeout(30):
        while log.stat().st_size > 0 or writer.counts.wal_pages > 0:
            await asyncio.sleep(0.02)


async def test_a_patient_write_keeps_its_place_and_is_committed_with_what_follows(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE_SECONDS", 30.0)
    done: list[int] = []
    commits = writer.counts.commits
    first = writer.submit(insert(1), committed=lambda _: done.append(1), patient=True)
    await writer.submit(insert(2), committed=lambda _: done.append(2))
    assert first.done()
    assert (done, writer.counts.commits - commits) == ([1, 2], 1)


async def test_a_patient_write_that_nothing_follows_is_committed_all_the_same(writer: Writer, path: Path) -> None:
    await asyncio.wait_for(writer.submit(insert(1), patient=True), 30)
    assert stored(path) == [1]


async def test_closing_commits_what_was_held_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE_SECONDS", 30.0)
    writer = Writer(open_writer(path), asyncio.get_running_loop())
    held = writer.submit(insert(1), patient=True)
    await writer.close()
    await held
    assert stored(path) == [1]


def _child(writer: Writer, connection: Connection, readers: Readers, refusals: object) -> None:
    told = []
    for attempt in (
        lambda: writer.call(insert(1)),
        lambda: connection.execute("SELECT 1"),
        lambda: readers.read_here(lambda reader: None),
    ):
        try:
            attempt()
        except StorageError as error:
            told.append(error.message)
    refusals.put(told)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_child_made_by_fork_is_refused(writer: Writer, path: Path) -> None:
    context = multiprocessing.get_context("fork")
    refusals = context.SimpleQueue()
    connection = open_reader(path)
    readers = Readers(lambda: open_reader(path))
    child = context.Process(target=_child, args=(writer, connection, readers, refusals))
    child.start()
    told = await asyncio.to_thread(refusals.get)
    await asyncio.to_thread(child.join, 30)
    assert len(told) == 3
    assert all("fork" in message for message in told)
    connection.close()
    await readers.close()


async def test_a_reader_cannot_write_and_sees_one_state(path: Path) -> None:
    readers = Readers(lambda: open_reader(path))
    with pytest.raises(StorageError, match="read-only"):
        await readers.run(insert(1))
    writer = Writer(open_writer(path), asyncio.get_running_loop())
    await writer.submit(insert(1))
    loop = asyncio.get_running_loop()

    def twice(connection: apsw.Connection) -> tuple[int, int]:
        first = scalar(connection, "SELECT count(*) FROM numbers")
        asyncio.run_coroutine_threadsafe(_submitted(writer, 2), loop).result(30)
        return first, scalar(connection, "SELECT count(*) FROM numbers")

    assert await readers.run(twice) == (1, 1)
    assert await readers.run(lambda connection: scalar(connection, "SELECT count(*) FROM numbers")) == 2
    await readers.close()
    with pytest.raises(StorageError, match="closed"):
        await readers.run(insert(1))
    await writer.close()


async def _submitted(writer: Writer, number: int) -> int:
    return await writer.submit(insert(number))
