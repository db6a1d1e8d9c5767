"""What a forked server process runs: the command line's own `serve` (or the command that its environment names), with failpoints
and a seeded defect of its environment."""

from __future__ import annotations

import os
import sys
from importlib import import_module


def serve() -> None:
    """Runs `perdure serve`, `agent` or `gateway` in this process until it is told to stop. Raises SystemExit as the command
    does."""
    import_module("perdure.failpoints").arm_from_environment()
    import_module("tests.crash.scripted").install()
    defect = os.environ.pop("PERDURE_TEST_DEFECT", "")
    if defect:
        import_module("tests.crash.defects").seed(defect)
    sys.argv = ["perdure", os.environ.pop("PERDURE_TEST_COMMAND", "serve")]
    import_module("perdure.cli").main()


if __name__ == "__main__":
    serve()
