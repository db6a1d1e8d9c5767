"""Standard streams that whoever started the command had closed (`perdure … >&-`): open, and leading nowhere.

Otherwise the next file that is opened gets their number, and what is printed goes into it. Import it before anything prints.
"""

from __future__ import annotations

import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, open(_null(number), mode, encoding="utf-8"))  # noqa: SIM115 -- for as long as we live


def _null(number: int) -> int:
    """The stream's own number, unless somebody took it meanwhile."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    if descriptor == number or _is_open(number):
        return descriptor
    os.dup2(descriptor, number)
    os.close(descriptor)
    return number


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


open_closed_streams()
