"""A disk without space: what is refused says so, in a running server and at a start; a mounted one where that is allowed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import CommandLine, ServerProcess, eventually

BYTES = 6_000_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BYTES},mode=0700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4_096):
                pass
        except OSError:
            return


def test_a_full_disk_is_told_by_readiness_and_by_the_refusal_and_is_over_when_there_is_space(
    disk: Path,
) -> None:
    server = ServerProcess(disk)
    try:
        server.start()
        fill(disk)
        assert server.get("/api/readyz").status_code == 503
        assert "full" in server.get("/api/readyz").json()["reasons"][0]
        (disk / "filler").unlink()
        eventually(lambda: server.get("/api/readyz").status_code == 200, "it is ready again")
        server.until(server.say("/say all is well")["turn"], "completed")
        assert server.stop() == 0
    finally:
        server.close()


def test_a_start_on_a_full_disk_says_so_with_exit_code_78(disk: Path) -> None:
    server = ServerProcess(disk)
    server.start()
    assert server.stop() == 0
    fill(disk)
    perdure = CommandLine(disk)
    refused = perdure("serve", PERDURE_PORT="0")
    assert refused.returncode == 78, refused.stderr
    assert "pace" in refused.stderr
    assert "Traceback" not in refused.stderr
    advice = perdure("doctor")
    assert advice.returncode == 1
    assert "free some space" in advice.stdout and "restore" not in advice.stdout
    (disk / "filler").unlink()
    server.start()
    assert server.stop() == 0


@pytest.mark.parametrize("free", [0, 16_384])
def test_a_first_start_on_a_disk_that_is_too_small_says_so_with_exit_code_78(disk: Path, free: int) -> None:
    fill(disk)
    with (disk / "filler").open("r+b") as file:
        file.truncate((disk / "filler").stat().st_size - free)
    refused = CommandLine(disk)("serve", PERDURE_PORT="0")
    assert refused.returncode == 78, refused.stderr
    assert "pace" in refused.stderr
    assert "Traceback" not in refused.stderr
