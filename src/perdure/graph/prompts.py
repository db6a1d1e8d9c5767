"""The system prompt: read from its file at every model call, never stored in a thread."""

from __future__ import annotations

from pathlib import Path

from perdure.graph.errors import PromptUnreadable


def read_prompt(path: Path | None) -> str | None:
    """The prompt's text, None without a file or with an empty one.

    Raises PromptUnreadable: an agent that answers without its instructions would be worse than one that fails and can
    be resumed once the file is back.
    """
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PromptUnreadable(
            f"The system prompt file {path} cannot be read ({detail}). "
            "Put the file back or change `system_prompt_file`, then resume the turn."
        ) from error
    return text or None
