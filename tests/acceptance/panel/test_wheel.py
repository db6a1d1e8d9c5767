"""What is installed brings the page along: nobody needs Node for it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perdure.panel.pages import BUILT

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="NO PAGE: it is not built. Build it with: make panel")
def test_the_wheel_carries_the_page(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "perdure/panel/static/index.html" in names
    built = {f"perdure/panel/static/assets/{each.name}" for each in (BUILT / "assets").iterdir()}
    assert built <= names
    assert not any("node_modules" in name for name in names)
