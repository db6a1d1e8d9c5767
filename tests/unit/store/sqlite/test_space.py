"""Room for what is accepted: asked of the disk itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from perdure.clock import SystemClock
from perdure.errors import StorageError, StorageFull
from perdure.store.sqlite.space import ROOM_BYTES, check_room
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Limits


def test_room_is_taken_and_given_back(tmp_path: Path) -> None:
    check_room(tmp_path / "db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    def no_room(descriptor: int, offset: int, length: int) -> None:
        assert length == ROOM_BYTES
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StorageFull):
        check_room(tmp_path / "db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        check_room(tmp_path / "gone" / "db")


async def test_a_store_on_a_disk_without_room_is_not_well_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path / "db", clock=SystemClock(), limits=Limits(), notify=LocalTransport())
    try:
        with monkeypatch.context() as full:

            def no_room(*_: int) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            full.setattr(os, "posix_fallocate", no_room)
            with pytest.raises(StorageFull):
                await store.check()
        await store.check()
    finally:
        await store.close()
