"""A preloaded parent that forks servers: importing LangGraph costs seconds, a kill storm needs hundreds of starts.

The parent imports everything, opens no file, starts no thread and no event loop; a child continues exactly where the command line
would. Speaks JSON lines: `{"environment": {…}, "log": path, "folder"?: path}` in (with a folder: plain `perdure serve` there), `{"pid": n}` out, and `{"pid": n, "status": s}` when a child ended
(the wait status). End of input kills the children and ends the parent.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = (
    "perdure.cli",
    "perdure.runtime",
    "perdure.graph.demo",
    "langchain.agents",
    "uvicorn.protocols.http.auto",
    "uvicorn.loops.auto",
)


def main() -> None:
    for module in PRELOADED:
        import_module(module)
    threads = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").is_dir() else 1
    if threads != 1:
        raise SystemExit(f"the preloaded parent runs {threads} threads: forking it is not safe")
    wake_out, wake_in = os.pipe()
    os.set_blocking(wake_in, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_in)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of the parent
    _say({"ready": True})
    _loop(wake_out)


def _loop(wake_out: int) -> None:
    children: set[int] = set()
    buffer = b""
    while True:
        readable, _, _ = select.select([0, wake_out], [], [])
        if wake_out in readable:
            os.read(wake_out, 4096)
            _reap(children)
        if 0 in readable:
            piece = os.read(0, 65536)
            if not piece:
                break
            *lines, buffer = (buffer + piece).split(b"\n")
            for line in lines:
                pid = _fork(json.loads(line))
                children.add(pid)
                _say({"pid": pid})
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            _say({"pid": pid, "status": status})


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _become_a_server(order)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # the child must never return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become_a_server(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    folder = order.get("folder")
    if folder is None:
        import_module("tests.crash.entry").serve()
    else:
        _serve_in(folder)


def _serve_in(folder: str) -> None:
    """`perdure serve` as a person types it there."""
    os.chdir(folder)
    sys.path[0] = folder
    import_module("perdure.failpoints").arm_from_environment()
    sys.argv = ["perdure", "serve"]
    import_module("perdure.cli").main()


if __name__ == "__main__":
    main()
