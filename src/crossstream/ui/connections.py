"""Connections to the page: few at a time, and none that waits long for a request.

Another one than `MOST` takes the place of the oldest that waits for nothing but a request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64
AT_ONCE = 32
"""So many are accepted before the first of them is looked at."""
SECONDS = 10.0


class Bounded(H11Protocol):
    """HTTP by h11, within bounds. A class for ``uvicorn.Config(http=…)``."""

    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(SECONDS, self._look, self.cycle)
        there: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
        if len(there) > MOST:
            waiting = [one for one in there if not one.is_busy]
            min(waiting, key=lambda one: one._since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is on its way."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _look(self, last: Any) -> None:
        """Ends a connection without another request than the ``last`` one."""
        if self.cycle is last and not self.is_busy:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(SECONDS, self._look, self.cycle)
