from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import DatabaseUnusable
from perdure.store.sqlite import file_systems
from perdure.store.sqlite.file_systems import refuse_unsafe, unsafe_file_system

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/share rw - nfs4 server:/export rw
31 30 0:41 / /mnt/share/local rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/two\040words rw - fuse.sshfs host:/ rw
33 22 0:43 / /Users rw shared:3 master:1 - virtiofs mount0 rw
34 22 0:44 / /host rw - 9p hgfs rw
35 22 0:45 / /over rw - ext4 /dev/sdc rw
36 22 0:46 / /over rw - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", None),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/share/local/data", None),
        ("/mnt/shared", None),
        ("/mnt/two words/data", "fuse.sshfs"),
        ("/Users/anna", "virtiofs"),
        ("/host", "9p"),
        ("/over/there", "cifs"),
    ],
)
def test_the_mount_that_holds_the_folder_decides(folder: str, kind: str | None) -> None:
    assert unsafe_file_system(Path(folder), MOUNTS) == kind


def test_an_unsafe_folder_is_refused_with_the_reason_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 22 0:40 / {tmp_path.resolve()} rw - nfs server:/export rw\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    with pytest.raises(DatabaseUnusable, match=r"nfs file system.*local disk"):
        refuse_unsafe(tmp_path)


def test_a_system_that_does_not_list_its_mounts_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "missing")
    refuse_unsafe(tmp_path)
