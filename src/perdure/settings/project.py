"""Project files: `perdure.toml` (ours) and `langgraph.json` (LangGraph's), read into one shape; nothing is imported.

Every fault is collected, so that a person sees all of them at once.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE_NAMES = ("perdure.toml", "langgraph.json")

_USED = frozenset({"graphs", "env", "dependencies"})
_ABOUT_IMAGES = frozenset(
    {
        "$schema",
        "api_version",
        "base_image",
        "dockerfile_lines",
        "image_distro",
        "keep_pkg_tools",
        "node_version",
        "pip_config_file",
        "pip_installer",
        "python_version",
    }
)
"""Keys of langgraph.json that tell how LangGraph builds its image: they change nothing here."""

_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(slots=True)
class Project:
    """`settings`: top-level keys as written; `agents`: name → keys as written; `deploy`: its table as written, which only
    `settings.deployment` reads; `environment`: variables it sets."""

    file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    agents: Mapping[str, Any] = field(default_factory=dict)
    deploy: Any = None
    environment: dict[str, str] = field(default_factory=dict)
    import_paths: tuple[Path, ...] = ()
    notices: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.file.parent if self.file else Path.cwd()


def find(folder: Path) -> Path | None:
    """The project file of a folder; ours wins."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def read(file: Path | None) -> Project:
    if file is None:
        return Project()
    project = Project(file=file)
    try:
        content = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            _read_langgraph(project, json.loads(content))
        else:
            _read_ours(project, tomllib.loads(content))
    except OSError as error:
        project.problems.append(f"{file}: cannot be read ({error.strerror}).")
    except (ValueError, RecursionError) as error:
        project.problems.append(f"{file}: is not valid {'JSON' if file.suffix == '.json' else 'TOML'}: {error}.")
    return project


def _read_ours(project: Project, content: dict[str, Any]) -> None:
    agents = content.pop("agents", {})
    if isinstance(agents, dict):
        project.agents = agents
    else:
        project.problems.append(f"{project.file}: `agents` must be tables: [agents.NAME].")
    project.deploy = content.pop("deploy", None)
    project.settings = content
    project.import_paths = (project.folder,)


def _read_langgraph(project: Project, content: Any) -> None:
    if not isinstance(content, dict):
        project.problems.append(f"{project.file}: must be a JSON object with `graphs`.")
        return
    for key in sorted(content.keys() - _USED - _ABOUT_IMAGES):
        project.notices.append(f"{project.file}: `{key}` is not used by Perdure.")
    graphs = content.get("graphs")
    if not isinstance(graphs, dict) or not graphs:
        project.problems.append(f'{project.file}: needs `graphs`: {{"name": "./file.py:graph"}}.')
        graphs = {}
    project.agents = {name: {"graph": _graph_reference(value)} for name, value in graphs.items()}
    _read_environment(project, content.get("env"))
    _read_dependencies(project, content.get("dependencies", []))


def _graph_reference(value: Any) -> Any:
    return value.get("path") if isinstance(value, dict) else value


def _read_environment(project: Project, env: Any) -> None:
    """A mapping of variables, or the path of a file with `NAME=value` lines."""
    if isinstance(env, dict):
        project.environment = {str(name): str(value) for name, value in env.items()}
    elif isinstance(env, str) and env:
        file = project.folder / env
        try:
            project.environment = read_assignments(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            project.problems.append(f"{project.file}: `env` names {file}, which cannot be read ({error}).")
    elif env not in (None, ""):
        project.problems.append(f"{project.file}: `env` must be a path or an object of variables.")


def read_assignments(content: str) -> dict[str, str]:
    """`NAME=value` lines; `export`, quotes, comments and blank lines are understood, nothing is expanded."""
    found: dict[str, str] = {}
    for line in content.splitlines():
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match:
            found[match[1]] = _unquoted(match[2])
    return found


def _unquoted(value: str) -> str:
    if value[:1] in {"'", '"'}:
        end = value.find(value[0], 1)
        if end > 0:
            return value[1:end]
    return re.split(r"\s+#", value, maxsplit=1)[0].strip()


def _read_dependencies(project: Project, dependencies: Any) -> None:
    """Relative folders are imported from; packages must be there already: Perdure installs nothing."""
    if not isinstance(dependencies, list) or not all(isinstance(entry, str) for entry in dependencies):
        project.problems.append(f"{project.file}: `dependencies` must be a list of texts.")
        return
    local = [entry for entry in dependencies if entry.startswith(".")]
    for entry in local:
        if not (project.folder / entry).is_dir():
            project.problems.append(f"{project.file}: dependency {entry!r} is not a folder.")
    project.import_paths = tuple((project.folder / entry).resolve() for entry in local)
    for entry in dependencies:
        if entry not in local and not _installed(entry):
            project.notices.append(
                f"{project.file}: {entry!r} is not installed; install it with: pip install '{entry}'"
            )


def _installed(requirement: str) -> bool:
    name = _DISTRIBUTION.match(requirement)
    try:
        return name is not None and importlib.metadata.distribution(name[0]) is not None
    except importlib.metadata.PackageNotFoundError:
        return False
