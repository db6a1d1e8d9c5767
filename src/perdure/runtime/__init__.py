"""The composition root: `Runtime` and `serve`."""

from perdure.runtime.runtime import Runtime, serve

__all__ = ["Runtime", "serve"]
