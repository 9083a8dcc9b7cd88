"""Answers for a service manager: whether the application runs, and whether it is ready."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from crossstream.error_codes import refuse
from crossstream.metrics.serving import SmallServer


class Health:
    """What the application is doing, as its threads say; a server answers from `open` to `close`.

    GET /health: 200 while the batches come and go; 503 when the application has failed, or one step takes longer than
    it may. GET /ready: 200 when the state is open and the first batch is done, or nothing waits for one; 503 before,
    and when it ends.

    ``patience``: seconds that a start, or a look for records with its batch, may take.
    """

    def __init__(self, host: str, port: int | None, patience: float) -> None:
        self._address = None if port is None else (host, port)
        self._patience = patience
        self._server: SmallServer | None = None
        self._step = "created"
        self._since: float | None = None
        self._error: str | None = None
        self._is_ready = False
        self.warnings: Callable[[], Sequence[str]] = tuple
        """What an operator should know though the application runs."""

    @property
    def port(self) -> int | None:
        """Where it listens: another one than asked for, if that was 0."""
        return None if self._server is None else self._server.port

    def open(self) -> None:
        """Begins to answer, if a port was set. Raises `ConfigError` CS-201 if that is not free."""
        self._error, self._is_ready = None, False
        if self._address is None or self._server is not None:
            return
        try:
            self._server = SmallServer(*self._address, _handler(self))
        except (OSError, OverflowError) as error:
            host, port = self._address
            what = f"health_port cannot be opened: {error}"
            step = "give a port that is free and an address of this machine; 0 takes any free port"
            raise refuse("CS-201", what, step, address=f"{host}:{port}") from error
        self._server.begin("crossstream health")

    def close(self) -> None:
        self._is_ready = False
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def begin(self, step: str) -> None:
        """A step begins that may get stuck."""
        self._step, self._since = step, time.monotonic()

    def rest(self, step: str, *, ready: bool = True) -> None:
        """Nothing runs: the application waits, for as long as it likes."""
        self._step, self._since, self._is_ready = step, None, ready

    def fail(self, error: Exception) -> None:
        """The application has ended with an error."""
        code = getattr(error, "code", None)
        self._step, self._error = "failed", f"{type(error).__name__} {code}" if code else type(error).__name__

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status and the body of an answer."""
        since = self._since
        seconds = 0.0 if since is None else time.monotonic() - since
        said: dict[str, Any] = {"doing": self._step, "seconds": round(seconds, 3)}
        if warnings := self.warnings():
            said["warnings"] = list(warnings)
        reason = None
        if self._error is not None:
            reason = f"the application has failed: {self._error}"
        elif path == "/health" and seconds > self._patience:
            reason = f"{self._step} takes longer than {self._patience:g} seconds"
        elif path == "/ready" and not self._is_ready:
            reason = f"not ready: {self._step}"
        elif path not in ("/health", "/ready"):
            return 404, {"reason": "ask for /health or /ready"}
        return (
            (200, {"ok": True, **said}) if reason is None else (503, {"ok": False, "reason": reason, **said})
        )


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = health.answer(self.path.partition("?")[0])
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Keeps quiet: probes come every few seconds."""

    return Handler
