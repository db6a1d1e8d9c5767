"""SIGTERM and SIGINT: the first asks for a hand-off, the second for an end at once, the third is the system's own."""

from __future__ import annotations

import asyncio
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Install on the running loop. `asked` is set by the first signal, `urgent` by the second."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._arrived)

    def remove(self) -> None:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)

    def _arrived(self) -> None:
        if self.asked.is_set():
            self.urgent.set()
            self.remove()
        self.asked.set()
