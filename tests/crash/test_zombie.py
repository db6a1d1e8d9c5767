"""SIGSTOP past the lease, takeover, SIGCONT: nothing that the old attempt still does may reach the file."""

from __future__ import annotations

from pathlib import Path

from tests.crash.zombie import zombie_violations


async def test_no_write_of_an_old_attempt_reaches_the_file(tmp_path: Path) -> None:
    assert await zombie_violations(tmp_path) == []
