"""Perdure is imported before LangGraph, which reads its strictness once. Generated examples are the same in every run: a
search for new ones is `HYPOTHESIS_PROFILE=search`."""

import os

from hypothesis import settings

import perdure  # noqa: F401

settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
