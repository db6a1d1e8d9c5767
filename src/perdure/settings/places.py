"""Where the database lies when nobody says it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CONTAINER_VOLUME = Path("/data")
FILE_NAME = "perdure.db"
GATEWAY_FILE_NAME = "gateway.db"


@dataclass(frozen=True, slots=True)
class Place:
    """`notice` tells when data would not be safe there."""

    path: Path
    origin: str
    notice: str | None = None


def default_database(environ: Mapping[str, str], volume: Path = CONTAINER_VOLUME) -> Place:
    """The container's volume, else the user's data directory, else the temp directory. Creates nothing."""
    if volume.is_dir() and os.access(volume, os.W_OK | os.X_OK):
        return Place(volume / FILE_NAME, f"default ({volume} is there and writable)")
    folder = user_data_folder(environ)
    if folder is not None and _can_be_made(folder):
        return Place(folder / FILE_NAME, "default (user data directory)")
    path = Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}" / FILE_NAME
    return Place(
        path,
        "default (temp directory)",
        f"The database lies in the temp directory ({path}) and may vanish with the next boot: set PERDURE_DATABASE.",
    )


def user_data_folder(environ: Mapping[str, str]) -> Path | None:
    """The platform's place for a program's data; None when the user has no home."""
    given = environ.get("XDG_DATA_HOME", "")
    if given.startswith("/"):
        return Path(given) / "perdure"
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        return None
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Application Support" / "perdure"
    return Path(home) / ".local" / "share" / "perdure"


def _can_be_made(folder: Path) -> bool:
    there = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)
