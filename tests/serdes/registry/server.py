"""A small registry over HTTP that can be away, slow, or refuse."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Registry:
    """``answers``: (status, body) that come before the real answers. ``asked``: the paths of all requests."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    slow: float = 0.0
    password: str | None = None
    url: str = ""

    def answer(self, method: str, path: str, body: Any, password: str | None) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        time.sleep(self.slow)
        if self.answers:
            return self.answers.pop(0)
        if password != self.password:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            id = int(parts[2])
            if not 0 < id <= len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {id} not found"}
            return 200, self.schemas[id - 1]
        known = [one for one in self.schemas if one["subject"] == parts[1]]
        if method == "POST":
            same = [one for one in known if one["schema"] == body["schema"]]
            if not same and len(parts) == 2:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            if not same:
                made = {"subject": parts[1], "version": len(known) + 1, "id": len(self.schemas) + 1, **body}
                self.schemas.append(made)
                same = [made]
            return 200, same[0]
        if not known:
            return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
        return 200, known[-1]


@contextmanager
def running() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            path = self.path.partition("?")[0]
            status, said = registry.answer(self.command, path, body, self.headers.get("Authorization"))
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
