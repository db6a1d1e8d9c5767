"""`perdure serve`."""

from __future__ import annotations

import os

from perdure.cli.flags import settings_flags
from perdure.config import Settings
from perdure.deferred import deferred
from perdure.settings.catalogue import SETTINGS


@settings_flags(setting.name for setting in SETTINGS)
async def serve(settings: Settings) -> None:
    """Starts the server: API and agents in one process, everything in one file. Prints its address and a one-time link.

    SIGTERM or Ctrl-C hands running turns over to the next start; a second signal cuts at once.
    """
    adopt_environment(settings)
    await deferred("perdure.runtime.runtime").serve(settings)


def adopt_environment(settings: Settings) -> None:
    """Sets what the project's `env` names and this process does not have, for graphs, tools and providers."""
    for name, value in settings.environment.items():
        os.environ.setdefault(name, value)
