"""A proxy that serves a server under a prefix, as people put one before it. One request a connection, bytes as they come."""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

_PIECE = 65_536


class PrefixProxy:
    def __init__(self, target: str, prefix: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 0)
        self._prefix = prefix
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=True)
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> PrefixProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        target, prefix = self._target, self._prefix

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    _relay(self.request, target, prefix)

        return Handler


def _relay(client: socket.socket, target: tuple[str, int], prefix: str) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = client.recv(_PIECE)
        if not piece:
            return
        head += piece
    with socket.create_connection(target) as server:
        server.sendall(_without_prefix(head, target, prefix))
        threading.Thread(target=_pour, args=(client, server), daemon=True).start()
        _pour(server, client)


def _without_prefix(head: bytes, target: tuple[str, int], prefix: str) -> bytes:
    head = re.sub(rb"^(\w+) " + prefix.encode() + rb"/", rb"\1 /", head, count=1)
    ours, port = f"{target[0]}:{target[1]}".encode(), rb"127.0.0.1:\d+"
    head = re.sub(rb"(?i)(\r\nhost: |\r\norigin: http://)" + port, rb"\g<1>" + ours, head)
    head = re.sub(rb"(?i)\r\nconnection: [^\r]*", b"", head)
    return head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


def _pour(source: socket.socket, drain: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            drain.sendall(piece)
        drain.shutdown(socket.SHUT_WR)
