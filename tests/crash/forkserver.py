"""A preloaded parent that forks servers and commands: importing LangGraph costs seconds, a kill storm needs hundreds of starts.

The parent imports everything, opens no file, starts no thread and no event loop; a child continues exactly where the command
line would. Speaks JSON lines. In: `{"environment": {…}, "out": path}` for a server of the crash suite, with `"folder": path,
"arguments": […]` for a command typed in that folder, with `"module": name, "arguments": […]` for a module run as a program;
`"in"` and `"err"` are further paths (nothing; the same as `out`).
Out: `{"pid": n}`, and `{"pid": n, "status": s}` when a child ended (the wait status). End of input kills the children and
ends the parent.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

PRELOADED = (
    "perdure.cli",
    "perdure.runtime.diagnosis",
    "perdure.runtime.files",
    "perdure.runtime.offline",
    "perdure.runtime.pruning",
    "perdure.runtime.runtime",
    "perdure.runtime.agent",
    "perdure.runtime.gateway",
    "perdure.graph.demo",
    "langchain.agents",
    "tests.crash.entry",
    "tests.crash.scripted",
    # A server takes a graph's file as it is loaded.
    "tests.crash.graphs.effects",
    "tests.crash.graphs.otherwise",
    "tests.crash.graphs.parked",
    # What is imported at the first use, by whichever process that is.
    "anyio._backends._asyncio",
    "httpcore2",
    "truststore",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)


def main() -> None:
    for module in PRELOADED:
        import_module(module)
    _build_the_parser("serve")
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


def _build_the_parser(command: str) -> None:
    """It is kept, as is what it learns of its options when it is used first."""
    program = import_module("perdure.cli").program(command)
    program.make_context("perdure", [command], resilient_parsing=True)
    program.commands[command].make_context(command, [], resilient_parsing=True)


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
        _become(order)
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


def _become(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    out = _writable(order["out"])
    os.dup2(os.open(order.get("in", os.devnull), os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(_writable(order["err"]) if "err" in order else out, 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    if "module" in order:
        sys.argv = [order["module"], *order["arguments"]]
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    elif "arguments" in order:
        _type(order["folder"], order["arguments"])
    else:
        import_module("tests.crash.entry").serve()


def _writable(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _type(folder: str, arguments: list[str]) -> None:
    """`perdure …` as a person types it there."""
    os.chdir(folder)
    sys.path[0] = folder
    import_module("perdure.failpoints").arm_from_environment()
    sys.argv = ["perdure", *arguments]
    import_module("perdure.cli").main()


if __name__ == "__main__":
    main()
