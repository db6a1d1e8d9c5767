"""The version before this one, as its wheel has it: see README.md."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
(WHEEL,) = HERE.glob("perdure-*.whl")
VERSION = WHEEL.name.split("-")[1]
DATABASE = HERE / f"{VERSION}.db"


def unpacked(folder: Path) -> Mapping[str, str]:
    """Lays it into an empty folder; the environment in which `python -m perdure` is it, with the packages of this one."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return {"PYTHONPATH": str(folder)}
