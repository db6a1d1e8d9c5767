"""Loading of settings: files, environment and flags become one validated `perdure.config.Settings`.

Sits beside the composition root: only `runtime` and the command line load settings, every room below is given them.
"""

from perdure.settings.loading import load

__all__ = ["load"]
