"""One at a time: what changes a deployment holds a lock on this machine, which goes with its process however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perdure.errors import PerdureError

_PID_BYTES = 32


class DeploymentBusy(PerdureError):
    """Somebody else is changing the same deployment."""

    code = "DEPLOYMENT_BUSY"


@contextlib.contextmanager
def alone(project: str, engine: str, folder: Path | None = None) -> Iterator[None]:
    """`engine`: the id of the engine. The lock is this user's, whatever folder the project is in. Raises DeploymentBusy."""
    word = hashlib.sha256(f"{engine}\0{project}".encode()).hexdigest()[:16]
    path = (folder or Path(tempfile.gettempdir())) / f"perdure-apply-{os.getuid()}-{word}.lock"
    descriptor = _held(path, project)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go
        os.close(descriptor)


def _held(path: Path, project: str) -> int:
    while True:
        descriptor = _open(path)
        try:
            _take(descriptor, project)
            if _is_there(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever held it has removed it: it keeps nobody from anything


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DeploymentBusy(f"The lock {path} cannot be opened: {error.strerror}. Remove it and try again.") from error


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _take(descriptor: int, project: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip()
        raise DeploymentBusy(
            f"Another apply, destroy or restart of the project {project} is at work on this machine (process {holder}). Nothing was done; "
            "try again when it has ended."
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
