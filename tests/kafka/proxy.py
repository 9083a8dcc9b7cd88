"""A proxy before a broker: it can say that there are no brokers, as one may that just starts, and cut a connection."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

METADATA = 3
FLEXIBLE = 9
"""From this version on metadata has compact lengths and tags, as all versions have that clients of today ask for."""
UNKNOWN_ACCESS = -(2**31)

FORGETFUL: dict[str, str | int | float] = {
    "metadata.recovery.strategy": "none",
    "topic.metadata.refresh.interval.ms": 100,
}
"""With these settings clients ask soon, and the first such answer cuts them off. With others the moment decides."""


class Proxy:
    """Listens on ``port`` of 127.0.0.1 and passes everything on to ``target``, until it is closed."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._lonely = False
        self.lies = 0
        self._cut: tuple[int, str] | None = None
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in it
        self._listener.close()

    @contextmanager
    def without_brokers(self) -> Iterator[None]:
        """Inside, metadata names no broker at all."""
        self._lonely = True
        try:
            yield
        finally:
            self._lonely = False

    def cut(self, api: int, how: str) -> None:
        """Ends the connection of the next request of this kind: before it arrives, or after, without its answer."""
        self._cut = api, how

    @property
    def has_cut(self) -> bool:
        """Whether the request has come."""
        return self._cut is None

    def lie(self, seconds: float) -> None:
        """`without_brokers` for so long; some client must have asked."""
        before = self.lies
        with self.without_brokers():
            time.sleep(seconds)
        assert self.lies > before

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # it is being started again
                    client.close()
                    continue
                whole, mute = threading.Lock(), threading.Event()
                threading.Thread(target=self._ask, args=(client, broker, whole, mute), daemon=True).start()
                threading.Thread(target=_pass_on, args=(broker, client, whole, mute), daemon=True).start()

    def _ask(
        self, client: socket.socket, broker: socket.socket, whole: threading.Lock, mute: threading.Event
    ) -> None:
        with _ending(client, broker):
            for request in _frames(client):
                api, version, correlation = struct.unpack(">hhi", request[:8])
                if self._cut is not None and self._cut[0] == api:
                    (_, how), self._cut = self._cut, None
                    if how == "after":
                        mute.set()
                        broker.sendall(_framed(request))
                        time.sleep(0.3)  # the broker does what was asked
                    return
                if api == METADATA and version >= FLEXIBLE and self._lonely:
                    self.lies += 1
                    with whole:
                        client.sendall(_framed(struct.pack(">i", correlation) + _no_brokers(version)))
                else:
                    broker.sendall(_framed(request))


def _pass_on(
    source: socket.socket, target: socket.socket, whole: threading.Lock, mute: threading.Event
) -> None:
    with _ending(source, target):
        for frame in _frames(source):
            if mute.is_set():
                continue
            with whole:
                target.sendall(_framed(frame))


@contextmanager
def _ending(*ends: socket.socket) -> Iterator[None]:
    """What ends one connection ends the other."""
    try:
        with suppress(OSError):
            yield
    finally:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _frames(source: socket.socket) -> Iterator[bytes]:
    with source.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", size)[0])


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _no_brokers(version: int) -> bytes:
    """Metadata of one topic that has no leader yet, and of no brokers."""
    compact = [bytes([size + 1]) for size in range(8)]  # a length, for as many bytes or entries
    topic = struct.pack(">h", 5) + compact[5] + b"other" + (b"\0" * 16 if version >= 10 else b"")
    topic += b"\0" + compact[0] + struct.pack(">i", UNKNOWN_ACCESS) + b"\0"
    cluster = b"\0" + struct.pack(">i", -1)
    access = struct.pack(">i", UNKNOWN_ACCESS) if version <= 10 else b""
    error = struct.pack(">h", 0) if version >= 13 else b""
    return b"\0" + struct.pack(">i", 0) + compact[0] + cluster + compact[1] + topic + access + error + b"\0"
