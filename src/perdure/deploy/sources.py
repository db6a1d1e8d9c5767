"""What an image is built from, as one tar: our Dockerfile and sources, the project's files, a wheelhouse where there is one.

The sources are those of this very Perdure: of the checkout it runs from, else those that its wheel carries in `sources/`. The tar
is the same for the same content (no times, no owners), so that an engine finds its cached layers again.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from perdure.deploy.engine import EngineError
from perdure.deploy.files import without_deploy
from perdure.deploy.model import PROJECT_FOLDER, Build

PACKAGE = Path(__file__).parents[1]
_CARRIED = Path("deploy") / "sources"
"""Where a wheel has what lies beside the package in a checkout."""

_BESIDE = ("Dockerfile", "LICENSE", "README.md", "pyproject.toml", "requirements.lock")
_NATS = {"Dockerfile": "nats.Dockerfile", "nats.lock": "nats.lock"}
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_NAME_OF_FILE = re.compile(r"-\d.*")
_BUILDERS = frozenset({"setuptools", "wheel", "packaging"})
_LEFT_OUT = frozenset({"__pycache__"})
_PAGE = PACKAGE / "panel" / "static" / "index.html"


def recipe(target: str = "perdure") -> str:
    """The digest of everything of ours in an image of this target. Blocks. Raises EngineError where nothing can be built."""
    digest = hashlib.sha256()
    for name, file in sorted((_of_nats() if target == "nats" else _of_program()).items()):
        digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


def write_context(build: Build, into: IO[bytes], *, wheelhouse: Path | None = None) -> None:
    """`wheelhouse`: a folder whose wheels alone are to be used; without it there may be one beside our Dockerfile. Blocks. Raises
    EngineError for a file that cannot be read, and for a wheelhouse without anything that this image needs."""
    files = _of_nats() if build.target == "nats" else _of_program()
    lock = next(files[name] for name in files if name.endswith(".lock"))
    wheels = _wheels(wheelhouse or _beside() / "wheelhouse", lock)
    if wheelhouse is not None and not wheels:
        raise EngineError(
            f"The wheelhouse {wheelhouse} has none of the packages that {lock.name} names. Fill it: "
            f"pip download --require-hashes -r {lock} -d {wheelhouse}"
        )
    files |= wheels
    if build.folder is not None:
        files |= {f"root{PROJECT_FOLDER}/{name}": build.folder / name for name in build.files if name != build.project}
    try:
        with tarfile.open(fileobj=into, mode="w") as tar:
            for name, file in files.items():
                with file.open("rb") as content:
                    mode = file.stat().st_mode
                    _add(tar, name, content, file.stat().st_size, executable=bool(mode & 0o100))
            for place, text in (*build.texts, *_project_file(build)):
                _add(tar, f"root{PurePosixPath(place)}", io.BytesIO(text.encode()), len(text.encode()))
    except OSError as error:
        raise EngineError(f"The image cannot be built: {error.filename}: {error.strerror}.") from error


def _project_file(build: Build) -> Iterator[tuple[str, str]]:
    """Without what it says about the deployment: that may hold a value that was taken out of it since the image was built."""
    if build.folder is not None and build.project in build.files:
        path = build.folder / build.project
        try:
            yield f"{PROJECT_FOLDER}/{build.project}", without_deploy(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise EngineError(f"The image cannot be built: {path}: {error}.") from error


def arguments(build: Build) -> Mapping[str, str]:
    """Of the Dockerfile. A checkout whose page was never built makes a server without one, as `make run` does."""
    return {"BASE": build.base} | ({} if build.target == "nats" or _PAGE.is_file() else {"PAGE": "optional"})


def _of_program() -> dict[str, Path]:
    """Of an installed Perdure the same as of the checkout it was made from."""
    beside, carried = _beside(), PACKAGE / _CARRIED
    found = {name: beside / name for name in _BESIDE}
    own = (file for file in _files(PACKAGE) if not file.is_relative_to(carried))
    return found | {f"src/perdure/{file.relative_to(PACKAGE).as_posix()}": file for file in own}


def _of_nats() -> dict[str, Path]:
    here = PACKAGE / "deploy"
    return {name: here / file for name, file in _NATS.items()} | {"LICENSE": _beside() / "LICENSE"}


def _wheels(folder: Path, lock: Path) -> dict[str, Path]:
    """Those that the lock names, and what builds a package that has no wheel; nothing when there is no such folder: then packages
    come over the network."""
    if not folder.is_dir():
        return {}
    named = {_plain(name) for name in _LOCKED.findall(lock.read_text(encoding="utf-8"))} | _BUILDERS
    return {
        f"wheelhouse/{file.name}": file
        for file in _files(folder)
        if file.suffix in {".whl", ".gz"} and _plain(_NAME_OF_FILE.sub("", file.name)) in named
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _beside() -> Path:
    for folder in (PACKAGE.parent.parent, PACKAGE / _CARRIED):
        if all((folder / name).is_file() for name in _BESIDE):
            return folder
    raise EngineError(
        "This installation has no Dockerfile to build images from. Name an `image` in [deploy], or work in a checkout."
    )


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _LEFT_OUT.intersection(path.relative_to(folder).parts):
            yield path


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int, *, executable: bool = False) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o755 if executable else 0o644
    tar.addfile(entry, content)
