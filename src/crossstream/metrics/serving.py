"""A small HTTP server beside an application: whatever connects to it costs the application next to nothing.

At most `MOST` connections are open. Another one takes the place of the oldest: an answer takes milliseconds, so that
one waits for a request that does not come. It may do so for `SECONDS`.
"""

from __future__ import annotations

import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

MOST = 32
SECONDS = 10.0

logger = logging.getLogger("crossstream.metrics")


class SmallServer(ThreadingHTTPServer):
    """Answers from `begin` to `end`. Raises `OSError`, `OverflowError` for an address where it cannot listen."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[Any, None] = {}
        self._turn = threading.Lock()
        self.address_family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), type(handler.__name__, (handler,), {"timeout": SECONDS}))

    @property
    def port(self) -> int:
        """Where it listens: another one than asked for, if that was 0."""
        return int(self.server_address[1])

    def begin(self, name: str) -> None:
        threading.Thread(target=self.serve_forever, name=name, daemon=True).start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Without asking for the name of the host, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._turn:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MOST else None
        if oldest is not None:
            self._part(oldest)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._turn:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("no answer to %s", client_address, exc_info=True)

    def _part(self, request: Any) -> None:
        """Ends a connection; the thread that reads from it sees that, and closes it."""
        with self._turn:
            self._open.pop(request, None)
        try:
            request.shutdown(socket.SHUT_RDWR)
        except OSError:
            logger.debug("a connection had ended")
