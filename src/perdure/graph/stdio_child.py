"""Starts one MCP server as a child and makes sure that it ends with the process that asked for it.

Run by path, without the package: `python -I -S stdio_child.py PARENT_PID COMMAND [ARGUMENT…]`, as leader of a session of its
own. It starts the command in its process group and waits for it. When the parent dies, however it dies, the kernel tells
this process, which kills the whole group at once: also what the command started (`npx` and `uvx` start the real server).
Where the kernel cannot tell (not Linux), a server ends when its standard input closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PARENT_DIED = signal.SIGUSR1


def main(arguments: list[str]) -> NoReturn:
    parent, command = int(arguments[0]), arguments[1:]
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(_PARENT_DIED, lambda *_: _end_group())
    # The session's owner sends SIGTERM to the group: the server ends itself, and this process after it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent(_PARENT_DIED)
    if os.getppid() != parent:
        _end_group()
    child = os.fork()
    if child == 0:
        _become(command)
    # Its output stays open here until the end was told on stderr, so that whoever reads both hears why it ended.
    os.close(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    os.write(2, f"{command[0]} {ended}\n".encode())
    _end_group()


def _become(command: list[str]) -> NoReturn:
    signal.signal(_PARENT_DIED, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(signal.SIGKILL)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _die_with_parent(number: int) -> None:
    # Only Linux has it.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _end_group() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
