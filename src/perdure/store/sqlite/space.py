"""Whether the disk has room for what an accepted message writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from perdure.errors import StorageError, StorageFull

ROOM_BYTES = 256 * 1024
"""More than one accepted message writes, ledger and log included."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def check_room(database: Path) -> None:
    """Takes that room beside the database and gives it back. Blocks. Raises StorageFull, StorageError.

    A write of one page says too little: it fits into what the write-ahead log holds already, when a message does not.
    Asking the file system how much is free would miss quotas.
    """
    probe = database.with_name(f"{database.name}.room")
    try:
        descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM_BYTES)
        finally:
            os.close(descriptor)
            probe.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull() from error
        raise StorageError(
            f"Nothing can be written beside {database}: {error.strerror}. Check the folder, its owner and its mount."
        ) from error
