"""Perdure is imported before LangGraph, which reads its strictness once."""

import perdure  # noqa: F401
