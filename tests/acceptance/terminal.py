"""The `sh` blocks of a page, typed into terminals as a reader would: servers in the first one, everything else in the second."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.acceptance.conftest import LIMIT_SECONDS, ServerProcess, environment

_SERVE = re.compile(r"^(?P<variables>(?:[A-Z_]+=\S+ )*)perdure serve\b.*$", re.MULTILINE)

# `ID` in a command stands for the card that has waited longest.
_CARD = """
card() {
  perdure approvals list --json | python -c 'import json, sys; print(json.load(sys.stdin)["items"][0]["id"])'
}
"""


def blocks(page: Path, heading: str) -> list[str]:
    """The `sh` blocks of the sections whose headings begin so, in order."""
    sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    return [
        block
        for section in sections
        if section.startswith(heading)
        for block in re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    ]


class Reader:
    """Follows blocks in a folder. `said` is what the last block wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: ServerProcess | None = None
        self.said = ""
        binaries = Path(sys.executable).parent
        self.variables = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}

    def follow(self, block: str) -> str:
        """Types the block; a new server takes the place of one that still runs."""
        self.said, typed = "", 0
        for serve in _SERVE.finditer(block):
            self._type(block[typed : serve.start()])
            self._serve(dict(pair.split("=", 1) for pair in serve["variables"].split()))
            typed = serve.end()
        self._type(block[typed:])
        return self.said

    def _type(self, script: str) -> None:
        if not script.strip():
            return
        done = subprocess.run(
            ["bash", "-c", f"{_CARD}\n{re.sub(r'(?<= )ID(?= |$)', '$(card)', script, flags=re.MULTILINE)}\npwd"],
            cwd=self.folder,
            env=environment(PERDURE_DATABASE=str(self._database), **self.variables),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS * 2,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        *lines, folder = done.stdout.splitlines()
        self.said += "\n".join([*lines, done.stderr])
        self.folder = Path(folder)

    @property
    def _database(self) -> Path:
        return self.server.database if self.server else self.folder / "perdure.db"

    def _serve(self, variables: dict[str, str]) -> None:
        if self.server is None:
            self.server = ServerProcess(self.folder)
        else:
            self.server.close()
        self.server.start(**variables)

    def until_the_server_died(self) -> None:
        """By its own hand, as the block asked for."""
        assert self.server is not None and self.server.process is not None
        assert self.server.process.wait(LIMIT_SECONDS) == -signal.SIGKILL

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
