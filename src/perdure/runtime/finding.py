"""One finding of `perdure doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is the command or the act that mends it; empty when there is nothing to do."""

    subject: str
    well: bool
    message: str
    mend: str = ""
