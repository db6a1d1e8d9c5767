"""Logs: structured, to standard error, readable on a terminal and JSON elsewhere, without secrets.

Everything passes here, also what libraries log through the standard module. Values of known secrets, everything that looks like
the secret of a named token, and fields whose name says that they are secret or what a tool was called with are masked in the
last step, after exceptions have become text.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, TextIO
from urllib.parse import unquote, urlsplit

import structlog

from perdure.api.auth import SECRET_PREFIX
from perdure.config import Settings

MASK = "***"
_SHORTEST_SECRET = 6
"""Shorter values are not masked by value: they would tear holes into ordinary words."""

_SECRET_NAME = re.compile(
    r"(?i)(^|[_\-.])(token|secret|password|passwd|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization|"
    r"cookie|set-cookie)$"
)
_CONTENT_NAMES = frozenset({"arguments", "args", "kwargs", "tool_input", "tool_output", "result"})
"""What people and models say to tools and hear from them: it stands in the journal, behind a token, and nowhere else."""

_NAMED_SECRET = re.escape(SECRET_PREFIX) + r"[A-Za-z0-9_-]{16,}"
"""The secrets of named tokens are not known here, only their hashes: they are recognised by how they begin."""

_CHATTY = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "anthropic", "mcp", "asyncio", "uvicorn.error")

Line = MutableMapping[str, Any]


def secret_name(name: str) -> bool:
    """`OPENAI_API_KEY`, `token`, `x-api-key`, `Authorization`; not `input_tokens` or `idempotency_key`."""
    return _SECRET_NAME.search(name) is not None


def hidden_name(name: str) -> bool:
    """Whether a field of this name is masked whatever it holds."""
    return name in _CONTENT_NAMES or secret_name(name)


def secret_values(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """Values that must not be logged: the token, passwords of NATS and what variables with a secret's name hold."""
    variables = {**settings.environment, **environ}
    found = {value.strip() for name, value in variables.items() if secret_name(name)}
    found |= {settings.token or ""}
    for address in (settings.nats_url or "").split(","):
        password = urlsplit(address).password or ""
        found |= {password, unquote(password)}
    return frozenset(value for value in found if len(value) >= _SHORTEST_SECRET)


class Redaction:
    """A structlog processor; `add` learns a secret that is known only later (a generated token)."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = set(values)
        self._pattern = self._compiled()

    def add(self, value: str) -> None:
        self._values.add(value)
        self._pattern = self._compiled()

    def _compiled(self) -> re.Pattern[str]:
        ordered = sorted(self._values, key=len, reverse=True)
        return re.compile("|".join([_NAMED_SECRET, *map(re.escape, ordered)]))

    def __call__(self, logger: Any, method: str, line: Line) -> Line:
        return {name: MASK if hidden_name(name) else self._masked(value) for name, value in line.items()}

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)
        if isinstance(value, Mapping):
            return {str(name): MASK if hidden_name(str(name)) else self._masked(part) for name, part in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._masked(part) for part in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._masked(str(value))


def set_up(settings: Settings, environ: Mapping[str, str], stream: TextIO = sys.stderr) -> Redaction:
    """Configures structlog and the standard module for this process; call once, before anything logs."""
    redaction = Redaction(secret_values(settings, environ))
    console = settings.log_format == "console" or (settings.log_format == "auto" and stream.isatty())
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=_last(redaction, console, stream))
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    return redaction


def set_up_command(settings: Settings, environ: Mapping[str, str]) -> None:
    """For a command that uses parts of the server in its own process: only what is wrong, on standard error."""
    set_up(replace(settings, log_level="error"), environ)


def _last(redaction: Redaction, console: bool, stream: TextIO) -> list[Any]:
    """Exceptions become text before the masking, so that theirs is masked too."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    return [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        redaction,
        renderer,
    ]
