"""Where a database may lie: SQLite's write-ahead log needs shared memory and locks that network and virtual file systems
do not give (measured elsewhere: corrupt within a minute on a host folder shared into a virtual machine)."""

from __future__ import annotations

from pathlib import Path

from perdure.errors import DatabaseUnusable

MOUNTS = Path("/proc/self/mountinfo")

UNSAFE = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "ncpfs", "afs",
        "ceph", "lustre", "gfs2", "ocfs2", "glusterfs",
    }
)  # fmt: skip


def unsafe_file_system(folder: Path, mounts: str | None = None) -> str | None:
    """The name of the network or virtual file system that holds the folder, None when it is a local one (or when the
    system does not tell: only Linux lists its mounts)."""
    if mounts is None:
        if not MOUNTS.exists():
            return None
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    kind = _kind_of(folder.resolve(), mounts)
    return kind if kind in UNSAFE or kind.startswith("fuse") else None


def refuse_unsafe(folder: Path) -> None:
    """Raises DatabaseUnusable for a folder on a network or virtual file system."""
    kind = unsafe_file_system(folder)
    if kind is not None:
        raise DatabaseUnusable(
            f"{folder} lies on a {kind} file system, where SQLite databases get damaged. Choose a folder on a local disk "
            "(in a container: a named volume, not a folder of the host)."
        )


def _kind_of(folder: Path, mounts: str) -> str:
    """The type of the last mount whose point is the longest prefix of the folder."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        head, separator, tail = line.partition(" - ")
        fields = head.split()
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescaped(fields[4]))
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), tail.split()[0]
    return kind


def _unescaped(field: str) -> str:
    """mountinfo writes blanks, tabs, newlines and backslashes as octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(octal, character)
    return field
