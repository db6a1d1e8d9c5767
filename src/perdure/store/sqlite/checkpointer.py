"""LangGraph's saver over our tables: fenced, linear in storage, and one transaction with the journal.

`Checkpointer(shared, authority)` is the saver of one attempt, of a reader, or of a test. LangGraph copies savers, so all
that changes lives in `shared`. Asynchronous only: a synchronous call is served from another thread and refused on the loop.

- `aput` and `aput_writes` encode their arguments and enqueue to the one FIFO writer before their first await: LangGraph
  does not wait for a task's writes before it saves the next checkpoint.
- A write names its turn (`metadata.run_id`) and its parent, which must be the head of the thread unless the write is a fork
  or an update. The latest checkpoint is the one committed last.
- An edit of a list's elements in place is stored with the channel's next version, as in LangGraph's PostgreSQL saver.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

import apsw
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from perdure.errors import BadRequest, LeaseLost, PerdureError
from perdure.failpoints import failpoint
from perdure.store.sqlite.authority import Authority, LastRead, StepPlan, StepWrite
from perdure.store.sqlite.checkpoint_queries import QUERIES, rows_of
from perdure.store.sqlite.encoding import StrictSerializer, assert_strict, type_names
from perdure.store.sqlite.loading import Loaded, Loader, TooLong
from perdure.store.sqlite.memory import DEFAULT_BYTES, Draft, Memories, ThreadMemory, View
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.threads import copy_thread_rows, delete_checkpoints, delete_thread_rows, prune_superseded
from perdure.store.sqlite.writes import CheckpointWrite, TaskWrites

T = TypeVar("T")

NUMBERS = 65_536
"""How far the mark of used numbers is moved ahead at once."""

PAGE = 25
"""Checkpoints of a history read in one go."""

_FREE_SOURCES = frozenset({"fork", "update"})


class Checkpoints:
    """What all savers of one database share: numbers, memory, readers. Made after the migrations, on the event loop."""

    def __init__(
        self,
        readers: Readers,
        *,
        state_types: Iterable[str] = (),
        memory_bytes: int = DEFAULT_BYTES,
        verify: bool = False,
    ) -> None:
        assert_strict()
        self.readers = readers
        self.serializer = StrictSerializer(type_names(state_types))
        self.memories = Memories(memory_bytes)
        self.verify = verify
        """Encodes and compares every element at every checkpoint, whatever is remembered; for tests and diagnosis."""

        self.loop = asyncio.get_running_loop()
        first: int = readers.read_here(lambda connection: next(iter(connection.execute(QUERIES["first_free"])))[0])
        self._count = itertools.count(first)
        self._last = self._mark = first

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        """A number that no item, list, space or position has or ever had while this process lives."""
        number = next(self._count)
        self._last = max(self._last, number)
        return number

    def keep_mark(self, connection: apsw.Connection) -> int:
        """In every transaction that stores numbers: moves the mark ahead of them. Returns it, for `marked`."""
        mark = self._mark
        if self._last + NUMBERS // 2 >= mark:
            mark = self._last + NUMBERS
            connection.execute(QUERIES["move_first_free"], {"first_free": mark})
        return mark

    def marked(self, mark: int) -> None:
        """The transaction that moved the mark is committed."""
        self._mark = max(self._mark, mark)

    def forget(self, thread_id: str) -> None:
        """Before and after the commit of `perdure.store.sqlite.threads`' verbs on a thread: its rows may be gone."""
        self.memories.forget(thread_id)


class Checkpointer(BaseCheckpointSaver[str]):
    def __init__(self, shared: Checkpoints, authority: Authority) -> None:
        super().__init__(serde=shared.serializer)
        self._shared = shared
        self._authority = authority

    @property
    def _serializer(self) -> StrictSerializer:
        return cast(StrictSerializer, self.serde)

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Grows as text; the second half keeps the versions of two branches apart."""
        count = current if isinstance(current, int) else int(current.split(".")[0], 16) if current else 0
        return f"{count + 1:08x}.{secrets.token_hex(4)}"

    # -- writing ------------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Commits a checkpoint with its events and the journal's position. Raises LeaseLost, StateTypeNotAllowed."""
        place = "input_checkpoint" if metadata.get("source") == "input" else "step_checkpoint"
        thread_id, ns = _place_of(config)
        memory = self._shared.memories.of(thread_id)
        with _Latching(self):
            failpoint(f"{place}.before")
            full = get_checkpoint_metadata(config, metadata)
            self._refuse_foreign(thread_id, full.get("run_id"))
            parent_id = get_checkpoint_id(config)
            parent = self._parent(memory, ns, parent_id)
            step = CheckpointWrite(
                memory=memory,
                draft=self._draft(memory),
                numbers=self._shared,
                ns=ns,
                checkpoint=checkpoint,
                metadata=full,
                parent_id=parent_id,
                parent=parent,
                guarded=self._authority.run_id is not None and not ns and full.get("source") not in _FREE_SOURCES,
            )
            step.encode(new_versions)
        await self._submit(memory, step.plan, step.store, step.keep)
        failpoint(f"{place}.after")
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Commits what a task wrote, with the events that prove it. Raises LeaseLost, StateTypeNotAllowed."""
        thread_id, ns = _place_of(config)
        memory = self._shared.memories.of(thread_id)
        with _Latching(self):
            failpoint("task_writes.before")
            checkpoint_id = str(config["configurable"]["checkpoint_id"])
            view = memory.view(ns, checkpoint_id)
            run_id = (config.get("metadata") or {}).get("run_id") or (view.run_id if view else None)
            self._refuse_foreign(thread_id, run_id)
            step = TaskWrites(
                memory=memory,
                draft=self._draft(memory),
                numbers=self._shared,
                ns=ns,
                checkpoint_id=checkpoint_id,
                view=view,
                task_id=task_id,
                task_path=task_path,
            )
            step.encode(writes)
        await self._submit(memory, step.plan, step.store, step.keep)
        failpoint("task_writes.after")

    def _draft(self, memory: ThreadMemory) -> Draft:
        return Draft(memory, self._serializer, self._shared, verify=self._shared.verify)

    def _refuse_foreign(self, thread_id: str, run_id: Any) -> None:
        authority = self._authority
        if authority.thread_id is not None and thread_id != authority.thread_id:
            raise LeaseLost(f"This attempt writes thread {authority.thread_id}, not {thread_id}.")
        if authority.run_id is not None and run_id != authority.run_id:
            raise LeaseLost(
                f"A write must name its turn: metadata.run_id is {run_id!r}, this attempt's turn is {authority.run_id!r}."
            )

    def _parent(self, memory: ThreadMemory, ns: str, parent_id: str | None) -> View | None:
        """The parent's view; one that this process has not read is read here, without values, on the calling thread."""
        if parent_id is None:
            return None
        view = memory.view(ns, parent_id)
        if view is not None:
            return view

        def read(connection: apsw.Connection) -> tuple[Loader, View | None]:
            loader = Loader(connection, self._serializer, memory)
            found = loader.view(ns, parent_id)
            for listed in found.lists.values() if found else ():
                for element in listed.elements:
                    element.value(self._serializer)  # learns its form, and the message's id
            return loader, found

        loader, found = self._shared.readers.read_here(read)
        return self._keep_loaded(memory, loader, [found] if found else [])

    def _keep_loaded(self, memory: ThreadMemory, loader: Loader, views: Iterable[View]) -> View | None:
        memory.adopt(loader.elements.values())
        for list_id, stored in loader.lists.items():
            known = memory.lists.get(list_id)
            if known is None or len(known.elements) < len(stored.elements):
                memory.lists[list_id] = stored
        last = None
        for view in views:
            last = memory.views.get((view.ns, view.checkpoint_id)) or view
            memory.remember(last)
        return last

    async def _submit(self, memory: ThreadMemory, plan: StepPlan, store: StepWrite, keep: Callable[[], None]) -> None:
        """Enqueues at once; what the memory keeps is dropped again if the write fails, whoever waits for it."""
        shared = self._shared
        mark = 0

        def write(connection: apsw.Connection) -> Sequence[int | None]:
            nonlocal mark
            mark = shared.keep_mark(connection)
            return store(connection)

        def settled(future: asyncio.Future[None]) -> None:
            memory.pending -= 1
            if future.cancelled() or future.exception() is not None:
                shared.forget(memory.thread_id)
            else:
                shared.marked(mark)

        future = self._authority.submit(plan, write)
        self._authority.last_read = None
        memory.pending += 1
        keep()
        future.add_done_callback(settled)
        await asyncio.shield(future)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The named checkpoint, or the one committed last in the namespace. Every value is the caller's own copy."""
        thread_id, ns = _place_of(config)
        checkpoint_id = get_checkpoint_id(config)
        asked = (thread_id, ns, checkpoint_id)
        memory = self._shared.memories.of(thread_id)
        last, self._authority.last_read = self._authority.last_read, None
        if last is not None and last.offered and last.asked == asked and not memory.pending:
            return last.found
        if memory.pending:
            await self._authority.settle()
            memory = self._shared.memories.of(thread_id)

        def read(loader: Loader) -> list[Loaded]:
            found = loader.by_id(ns, checkpoint_id) if checkpoint_id else loader.latest(ns)
            return [found] if found else []

        loaded = self._read_quickly(memory, read)
        if loaded is None:
            loaded = await self._read(memory, read)
        found = loaded[0].tuple if loaded else None
        if found is not None and not found.pending_writes and self._authority.run_id is not None:
            self._authority.last_read = LastRead(asked, found)
        return found

    def _read_quickly(self, memory: ThreadMemory, read: Callable[[Loader], list[Loaded]]) -> list[Loaded] | None:
        """On the event loop: a short thread that is remembered. None for any other."""

        def run(connection: apsw.Connection) -> tuple[Loader, list[Loaded]]:
            loader = Loader(connection, self._serializer, memory, quick=True)
            return loader, read(loader)

        try:
            loader, loaded = self._shared.readers.read_here(run)
        except TooLong:
            return None
        self._keep_loaded(memory, loader, (one.view for one in loaded))
        return loaded

    async def _read(self, memory: ThreadMemory, read: Callable[[Loader], list[Loaded]]) -> list[Loaded]:
        def run(connection: apsw.Connection) -> tuple[Loader, list[Loaded]]:
            loader = Loader(connection, self._serializer, memory)
            return loader, read(loader)

        loader, loaded = await self._shared.readers.run(run)
        self._keep_loaded(memory, loader, (one.view for one in reversed(loaded)))
        return loaded

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Newest first. `before` is a checkpoint of the thread: those committed before it. Nothing is held between pages."""
        bindings: dict[str, Any] = {
            "filters": _filters(filter or {}),
            "before": get_checkpoint_id(before) if before else None,
            "limit": -1 if limit is None else limit,
        }
        query = "places_of_all"
        await self._authority.settle()
        if config is not None:
            query = "places_of_space"
            bindings["thread_id"] = str(config["configurable"]["thread_id"])
            bindings["ns"] = config["configurable"].get("checkpoint_ns")
            bindings["checkpoint_id"] = get_checkpoint_id(config)
        places = await self._shared.readers.run(lambda connection: rows_of(connection, query, **bindings))
        for start in range(0, len(places), PAGE):
            for loaded in await self._page(places[start : start + PAGE]):
                yield loaded

    async def _page(self, places: Sequence[tuple[Any, ...]]) -> list[CheckpointTuple]:
        tuples: dict[tuple[int, int], CheckpointTuple] = {}
        for thread_id in dict.fromkeys(place[0] for place in places):
            mine = [(space, position) for owner, space, position in places if owner == thread_id]
            memory = self._shared.memories.of(thread_id)

            def read(loader: Loader, mine: list[tuple[int, int]] = mine) -> list[Loaded]:
                found = ((place, loader.at(*place)) for place in mine)
                kept = [(place, loaded) for place, loaded in found if loaded is not None]
                tuples.update((place, loaded.tuple) for place, loaded in kept)
                return [loaded for _, loaded in kept]

            await self._read(memory, read)
        return [tuples[space, position] for _, space, position in places if (space, position) in tuples]

    # -- whole threads ------------------------------------------------------------------------------------------------

    async def adelete_thread(self, thread_id: str) -> None:
        await self._on_threads([str(thread_id)], lambda connection: delete_thread_rows(connection, str(thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` keeps the head of each namespace, `delete` nothing."""
        if strategy not in {"keep_latest", "delete"}:
            raise BadRequest(f"Unknown strategy {strategy!r}: `keep_latest` or `delete`.")
        verb = prune_superseded if strategy == "keep_latest" else delete_thread_rows
        threads = [str(thread_id) for thread_id in thread_ids]

        def prune(connection: apsw.Connection) -> None:
            for thread_id in threads:
                verb(connection, thread_id)

        await self._on_threads(threads, prune)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The copy shares its lists and items with the source. Raises BadRequest when the target holds checkpoints."""
        source, target = str(source_thread_id), str(target_thread_id)
        await self._on_threads(
            [target], lambda connection: copy_thread_rows(connection, source, target, iter(self._shared))
        )

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Looks through all checkpoints: a tool's verb, never a turn's."""

        def find(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            return [
                place for run_id in run_ids for place in rows_of(connection, "checkpoints_of_run", run_id=str(run_id))
            ]

        await self._authority.settle()
        places = await self._shared.readers.run(find)
        threads = [memory.thread_id for memory in self._shared.memories]
        await self._on_threads(threads, lambda connection: delete_checkpoints(connection, places))

    async def _on_threads(self, threads: Sequence[str], change: Callable[[apsw.Connection], None]) -> None:
        if self._authority.run_id is not None:
            raise LeaseLost("An attempt writes its own turn alone, no whole threads.")
        mark = 0

        def write(connection: apsw.Connection) -> Sequence[int | None]:
            nonlocal mark
            change(connection)
            mark = self._shared.keep_mark(connection)
            return ()

        try:
            for thread_id in threads:
                self._shared.forget(thread_id)
            await self._authority.submit(StepPlan(), write)
            self._shared.marked(mark)
        finally:
            for thread_id in threads:
                self._shared.forget(thread_id)

    # -- synchronous calls: from a thread of a synchronous node ---------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._from_thread(self.aget_tuple(config))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._from_thread(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._from_thread(self.aput_writes(config, writes, task_id, task_path))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def collect() -> Any:
            return [one async for one in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from self._from_thread(collect())

    def _from_thread(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            call.close()
            raise TypeError(
                "This checkpointer is asynchronous: call the graph with `ainvoke` or `astream` in an asynchronous node."
            )
        return asyncio.run_coroutine_threadsafe(call, self._shared.loop).result()


class _Latching:
    """A write that cannot be encoded, or names another turn, fails the attempt like one that cannot be stored: LangGraph
    does not stop at a task's writes that fail."""

    def __init__(self, saver: Checkpointer) -> None:
        self._authority = saver._authority

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None or not isinstance(error, Exception):
            return
        failure = error

        def fail(connection: apsw.Connection) -> NoReturn:
            raise failure

        with contextlib.suppress(PerdureError):  # a latched attempt refuses at once, and needs no second failure
            self._authority.submit(StepPlan(), fail).add_done_callback(_told)


def _told(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def _place_of(config: RunnableConfig) -> tuple[str, str]:
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""


def _filters(filter: Mapping[str, Any]) -> str:
    """`[[key, value], …]`; an object or array is compared as its JSON text, as SQLite shows it."""

    def comparable(value: Any) -> Any:
        if isinstance(value, (dict, list)):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return int(value) if isinstance(value, bool) else value

    return json.dumps([[key, comparable(value)] for key, value in filter.items()], default=str)
