"""The table of settings in docs/configuration.md, made from the catalogue. `python -m tests.settings_table` rewrites the page."""

from __future__ import annotations

from pathlib import Path

from perdure.config import AgentSettings, Settings
from perdure.settings.catalogue import SETTINGS

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"


def settings_table() -> str:
    rows = ["| setting | variable | default | |", "|---|---|---|---|"]
    for setting in SETTINGS:
        mark = " *agent*" if setting.of_agent else ""
        rows.append(f"| `{setting.name}` | `{setting.variable}` | {_default(setting.name)} | {setting.help}{mark} |")
    return "\n".join(rows)


def _default(name: str) -> str:
    settings, agent = Settings(), AgentSettings(name="agent")
    value = getattr(settings, name) if hasattr(settings, name) else getattr(agent, name)
    if value is None or value == ():
        return "—"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def main() -> None:
    head, rest = PAGE.read_text().split("<!-- settings:begin -->")
    tail = rest.split("<!-- settings:end -->")[1]
    PAGE.write_text(f"{head}<!-- settings:begin -->\n{settings_table()}\n<!-- settings:end -->{tail}")


if __name__ == "__main__":
    main()
