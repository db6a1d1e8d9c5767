"""The composition root. `perdure.runtime.runtime` has `Runtime` and `serve`; commands that copy or read a file load no more than
that takes."""
