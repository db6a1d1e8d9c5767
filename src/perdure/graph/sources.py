"""Things named in settings: `module:attribute` or `./file.py:attribute`, imported so that their own imports work."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.errors import ConfigurationError

_folders: set[Path] = set()
"""Folders that files were loaded from, to tell their modules from installed ones."""


def load_attribute(reference: str, base: Path, *, what: str, owner: str) -> Any:
    """The named object. `what` and `owner` (an agent's name) go into the message of a ConfigurationError.

    A file is imported under its own name (`./agent.py` as `agent`, a file of a package by its dotted name), with its folder and
    `base` on the path; a second file of the same name gets a name made with the agent's, so that neither hides the other.
    """
    place, separator, attribute = reference.rpartition(":")
    if not separator or not place or not attribute:
        raise ConfigurationError(
            f"{what} of agent {owner!r} is {reference!r}: write module:attribute or ./file.py:attribute."
        )
    module = _load_file(place, base, what, owner) if _is_file(place) else _load_module(place, base, what, owner)
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            known = ", ".join(sorted(each for each in vars(module) if not each.startswith("_"))[:20])
            raise ConfigurationError(
                f"{what} of agent {owner!r} names {attribute!r}, which {place} does not have. It has: {known}."
            ) from None
    return found


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _load_module(name: str, base: Path, what: str, owner: str) -> ModuleType:
    _on_path(base)
    with _import_problems(name, what, owner):
        return importlib.import_module(name)


def _load_file(place: str, base: Path, what: str, owner: str) -> ModuleType:
    path = (base / place).resolve()
    if not path.is_file():
        raise ConfigurationError(f"{what} of agent {owner!r} is in {path}, and there is no such file.")
    root, name = _module_name(path)
    loaded = _loaded_from(path)
    if loaded is not None:
        return loaded
    _on_path(base)
    _on_path(root)
    with _import_problems(str(path), what, owner), _own_siblings(root):
        if "." in name and not _taken(name):
            return importlib.import_module(name)
        return _execute(path, name if not _taken(name) else f"perdure_agent_{_identifier(owner)}_{path.stem}")


def _module_name(path: Path) -> tuple[Path, str]:
    """The folder to import from and the dotted name: `pkg/agent.py` with `pkg/__init__.py` is `pkg.agent`."""
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _taken(name: str) -> bool:
    """Whether the name means another module already: one that is loaded, installed or built in."""
    if name in sys.modules or name.partition(".")[0] in sys.stdlib_module_names:
        return True
    if "." in name:
        return False
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    origin = Path(found.origin).resolve() if found and found.origin and found.has_location else None
    return found is not None and (origin is None or origin.parent not in _folders)


def _loaded_from(path: Path) -> ModuleType | None:
    return next(
        (each for each in list(sys.modules.values()) if _named(each, path.name) and _file_of(each) == path), None
    )


def _named(module: ModuleType, name: str) -> bool:
    """A cheap first look: resolving the paths of all loaded modules takes longer than the rest of a start."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and os.path.basename(file) == name  # noqa: PTH119


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _on_path(folder: Path) -> None:
    resolved = folder.resolve()
    _folders.add(resolved)
    if str(resolved) not in sys.path:
        sys.path.insert(0, str(resolved))


@contextmanager
def _own_siblings(root: Path) -> Iterator[None]:
    """While a file is imported, modules of *other* agents' folders do not stand in for files of its own folder."""
    own = {file.stem for file in root.glob("*.py")} | {file.parent.name for file in root.glob("*/__init__.py")}
    hidden = {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in own and _hides(root, module)
    }
    for name in hidden:
        del sys.modules[name]
    path = list(sys.path)
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.modules.update(hidden)
        sys.path[:] = path


def _hides(root: Path, module: ModuleType) -> bool:
    file = _file_of(module)
    if file is None or file.is_relative_to(root):
        return False
    return any(file.is_relative_to(folder) for folder in _folders if folder != root)


@contextmanager
def _import_problems(place: str, what: str, owner: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises: a script that exits is no graph
        raise ConfigurationError(
            f"{what} of agent {owner!r} cannot be imported: {_where(error, place)}: {type(error).__name__}: {error}"
        ) from error


def _where(error: BaseException, place: str) -> str:
    """`file, line n`: of a syntax error itself, else the innermost frame outside the import system."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    users = [each for each in frames if each.filename != __file__ and "importlib" not in each.filename]
    own = [each for each in users if each.filename == place] or users
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else place


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
