"""The web server of the page: Starlette in a thread of its own, and a thread that observes once a second.

It answers reading requests only, and who asks needs a token, for other users of the machine reach the port as well. The
first request with the token gets a cookie. What a page of another site asks through the browser is refused: by what the
browser says of it, and, on an address of this machine alone, by the name that is asked.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from crossstream.config import needs, not_opened
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.query.text import whole_number
from crossstream.ui.history import RINGS
from crossstream.ui.source import Source, changes_of, found_rows, reason

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger("crossstream.ui")

ASSETS = Path(__file__).with_name("assets")
TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
COOKIE = "crossstream-token-{port}"
"""Browsers give a cookie to all ports of a host."""
ASKERS = (None, "same-origin", "none")
"""``Sec-Fetch-Site`` of the page itself, of an address that was typed, and of what is no browser."""

SECONDS = 1.0
"""From one observation to the next while a browser listens; else each second one is left out."""

SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Feed:
    """Observes a source in a thread. ``looking``: how many browsers listen; ``text``: the newest event."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.looking = 0
        self.text = b""
        self.number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crossstream ui: feed", daemon=True)

    def start(self) -> None:
        self._look()
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stop.wait(SECONDS):
            turn += 1
            if self.looking or turn % 2 == 0:
                self._look(keep=turn % 2 == 0)

    def _look(self, *, keep: bool = True) -> None:
        try:
            seen = self.source.observe()
            self.text = b"data: " + msgspec.json.encode(seen) + b"\n\n"
            self.number += 1
            if keep:
                self.source.keep(seen)
        except Exception as error:  # the page is no reason to stop
            logger.warning("the page could not be brought up to date: %s", type_and_text(error))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        with suppress(CrossStreamError, OSError):
            self.source.keep(self.source.observe(), last=True)
        self.source.close()


class Page:
    """Serves until `close`. Raises `ConfigError` CS-201 without the extra ``ui``, or a free port.

    ``is_open``: no token is needed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        source: Callable[[], Source],
        setting: str = "ui_port",
        *,
        is_open: bool = False,
    ) -> None:
        with needs("ui", setting):
            import starlette  # noqa: F401
            import uvicorn

            from crossstream.ui.connections import AT_ONCE, Bounded
        try:
            listening = _listening(host, port)
        except OSError as error:
            raise not_opened(setting, host, port, error) from error
        self.token = None if is_open else secrets.token_urlsafe(16)
        self.host, self.port = host, int(listening.getsockname()[1])
        try:
            self.feed = Feed(source())
        except BaseException:
            listening.close()
            raise
        self._closing = threading.Event()
        guard = _Guards(self.token, is_loopback(host), COOKIE.format(port=self.port))
        app = application(self.feed, guard, self._closing)
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            http=Bounded,
            loop="asyncio",
            server_header=False,
            backlog=AT_ONCE,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._socket = listening
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="crossstream ui: server", daemon=True
        )
        self.feed.start()
        self._thread.start()

    @property
    def address(self) -> str:
        """What to open in a browser, with the token."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/" + ("" if self.token is None else f"?token={self.token}")

    def close(self) -> None:
        """Stops serving; connections that are open end."""
        self._closing.set()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self.feed.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family, backlog=64)
    made.set_inheritable(False)
    return made


def application(feed: Feed, guards: _Guards, closing: threading.Event) -> Starlette:
    """The routes, behind the check of who asks."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    source, searches = feed.source, threading.Lock()

    def answer(content: bytes, kind: str = "application/json") -> Response:
        return Response(content, media_type=kind, headers=SECURITY)

    def page(request: Request) -> Response:
        return answer(_asset("page.html"), "text/html")

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        return answer(_asset(name), TYPES[name]) if name in TYPES else Response(status_code=404)

    async def events(request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            feed.looking += 1
            try:
                sent = -1
                while not closing.is_set():
                    if sent != feed.number:
                        sent = feed.number
                        yield feed.text
                    await asyncio.sleep(0.25)
            finally:
                feed.looking -= 1

        return StreamingResponse(lines(), media_type="text/event-stream", headers=SECURITY)

    def observation(request: Request) -> Response:
        return answer(feed.text.removeprefix(b"data: ").strip())

    def history(request: Request) -> Response:
        ring = request.query_params.get("span", "minutes")
        if ring not in RINGS:
            return Response(status_code=404)
        return answer(msgspec.json.encode(source.history.read(ring, time.time())))

    def graph(request: Request) -> Response:
        return answer(source.graph())

    def asked(work: Callable[[Any], Any], lock: threading.Lock = searches) -> Callable[[Request], Response]:
        def handler(request: Request) -> Response:
            try:
                with lock:  # one at a time: a search takes memory
                    return answer(msgspec.json.encode(work(request.query_params)))
            except CrossStreamError as error:
                problem = {"code": error.code, "what": error.what, "next": error.next}
                return Response(msgspec.json.encode(problem), 400, SECURITY, "application/json")

        return handler

    def batch(query: Any) -> int | None:
        as_of = query.get("as_of", "")
        if as_of and whole_number(as_of) is None:
            raise refuse("CS-281", f"{as_of[:40]!r} is not a batch", "choose one that is kept")
        return whole_number(as_of)

    def rows(query: Any) -> Any:
        store = source.open(query.get("store", ""), batch(query))
        operation = query.get("operation", "all")
        return found_rows(store, operation, query.get("key", ""), query.get("to", ""), source.rows)

    def changes(query: Any) -> Any:
        return changes_of(source, query.get("store", ""), query.get("key", ""))

    def why(query: Any) -> Any:
        store, key, place = (query.get(name, "") for name in ("store", "key", "place"))
        return reason(source, store, key, place, batch(query))

    routes = [
        Route("/", page),
        Route("/assets/{name}", asset),
        Route("/api/events", events),
        Route("/api/observation", observation),
        Route("/api/history", history),
        Route("/api/graph", graph),
        Route("/api/stores", asked(lambda query: source.stores())),
        Route("/api/rows", asked(rows)),
        Route("/api/changes", asked(changes)),
        Route("/api/why", asked(why, threading.Lock())),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, guards=guards)])


@cache
def _asset(name: str) -> bytes:
    return (ASSETS / name).read_bytes()


class _Guards(NamedTuple):
    """``token``: what is needed, if anything. ``is_near``: only this machine can connect. ``cookie``: its name."""

    token: str | None
    is_near: bool
    cookie: str

    def refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not to be carried out; to the first one with the token it gives a cookie."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        host = request.headers.get("host", "")
        if self.is_near and not is_loopback((host.rpartition(":")[0] or host).strip("[]")):
            return PlainTextResponse("this page answers to localhost only\n", 403, SECURITY)
        if self.token is not None and self._fits(request.query_params.get("token")):
            others = [one for one in request.query_params.multi_items() if one[0] != "token"]
            response = RedirectResponse(f"/?{urlencode(others)}" if others else "/", 303, SECURITY)
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return response
        if request.url.path.startswith("/api/") and request.headers.get("sec-fetch-site") not in ASKERS:
            return PlainTextResponse("this page answers to its own requests only\n", 403, SECURITY)
        if self.token is not None and not self._fits(request.cookies.get(self.cookie)):
            text = "open the page at the address that was printed or logged at the start: it has a token\n"
            return PlainTextResponse(text, 401, SECURITY)
        return None

    def _fits(self, given: str | None) -> bool:
        expected = str(self.token).encode()
        return given is not None and hmac.compare_digest(given.encode(errors="replace"), expected)


class _Guard:
    """Lets requests through that are to be carried out."""

    def __init__(self, app: Any, guards: _Guards) -> None:
        self._app = app
        self._guards = guards

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request

        if scope["type"] == "http":
            refusal = self._guards.refusal(Request(scope))
            await (self._app if refusal is None else refusal)(scope, receive, send)
