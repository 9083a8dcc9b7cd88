"""What an application opens to be watched: metrics, telemetry, the page.

Only what is asked for is imported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crossstream.api.topology import Topology
from crossstream.application.totals import Live, Totals
from crossstream.config import StreamsConfig
from crossstream.errors import CrossStreamError
from crossstream.metrics.observation import Observation
from crossstream.metrics.opentelemetry import is_used
from crossstream.planning.plan import Plan
from crossstream.query.files import open_own
from crossstream.query.store import StoreReader
from crossstream.storage.log_entries import shown
from crossstream.storage.root import StateRoot
from crossstream.topics import TopicLog, TopicPartition

if TYPE_CHECKING:
    from crossstream.application.loop import Loop
    from crossstream.metrics.opentelemetry import Telemetry
    from crossstream.metrics.prometheus import Endpoint
    from crossstream.recompute.reason import Why
    from crossstream.ui.server import Page

logger = logging.getLogger("crossstream.ui")

FRESH_SECONDS, ASK_SECONDS = 1.0, 2.0
"""The end offsets that the application itself saw are used for so long; then others are asked for, so often."""


class Monitoring:
    """Opened by a start, closed by a stop; an application that failed stays visible until it is stopped.

    ``look``: the loop if there is one, the status, and what the application failed with. ``explain``: finds the
    records that made a row, for the page, in so many seconds.
    """

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        config: StreamsConfig,
        state: StateRoot,
        look: Callable[[], tuple[Loop | None, str, str | None]],
        explain: Callable[[str, Any, int | None, float | None], Why],
    ) -> None:
        self._explain = explain
        self._topology = topology
        self._plan = plan
        self._config = config
        self._state = state
        self._look = look
        self._totals = Totals.of(topology, config)
        self._has_ended = True
        self._is_watched = False
        self._endpoint: Endpoint | None = None
        self._telemetry: Telemetry | None = None
        self._page: Page | None = None
        self._ends = _Ends()
        self._last = Live()
        self._was_open = False

    def open(self, loop: Loop) -> None:
        """Opens what the settings ask for. Raises `ConfigError` CS-201: an extra is missing, a port is taken."""
        config = self._config
        if self._is_watched:
            return
        if config.metrics_port is None and config.ui_port is None and not is_used():
            return
        self._last = Live(partitions=loop.partitions)
        if config.metrics_port is not None:
            from crossstream.metrics.prometheus import Endpoint

            self._endpoint = Endpoint(config.metrics_host, config.metrics_port, self.observe)
        if is_used():
            from crossstream.metrics.opentelemetry import Telemetry

            self._telemetry = Telemetry(config.application_id, self.observe)
        if config.ui_port is not None:
            self._page = self._opened(config.ui_port)
        self._is_watched = True

    def begin(self) -> Totals:
        """The totals for a loop: of the application since its start. A start after a stop begins them again."""
        if self._has_ended:
            self._totals, self._has_ended = Totals.of(self._topology, self._config), False
        return self._totals

    def observe(self) -> Observation:
        """The application now."""
        return self._totals.observe(self._live())

    def _opened(self, port: int) -> Page:
        from crossstream.graph.layout import drawing_of
        from crossstream.ui.server import Page
        from crossstream.ui.source import WHY_SECONDS, LiveSource

        rights, drawing = self._config.state_rights, drawing_of(self._topology)
        page = Page(
            self._config.ui_host,
            port,
            lambda: LiveSource(
                self._state,
                rights,
                self.observe,
                drawing,
                self._reader,
                lambda: self._was_open,
                lambda store, key, as_of: self._explain(store, key, as_of, WHY_SECONDS),
            ),
            is_open=self._config.ui_open,
        )
        logger.info("the page of %s: %s", self._config.application_id, page.address)
        return page

    def _reader(self, name: str, as_of: int | None) -> StoreReader:
        """A store, with the serdes of the application itself."""
        return open_own(self._state, self._plan, name, as_of)

    @property
    def ui_address(self) -> str | None:
        return None if self._page is None else self._page.address

    @property
    def metrics_port(self) -> int | None:
        """The port that Prometheus asks."""
        return None if self._endpoint is None else self._endpoint.port

    def note_open(self) -> None:
        """The state is open, and this process the only writer."""
        self._was_open = True

    def note_batch(self) -> None:
        """A batch was just added to the totals."""
        if self._telemetry is not None:
            self._telemetry.add(self._totals.recent[-1])

    def close(self) -> None:
        """Closes everything; what was seen last is kept for the page of a state folder."""
        for one in (self._page, self._endpoint, self._telemetry):
            if one is not None:
                one.close()
        self._ends.close()
        self._endpoint = self._telemetry = self._page = None
        self._is_watched = self._was_open = False
        self._has_ended = True

    def _live(self) -> Live:
        loop, status, failure = self._look()
        last = self._last
        if loop is None or not loop.is_open:
            return Live(status, last.partitions, None, last.lag, failure)
        lag = self._ends.lag(loop, last.lag)
        waits = loop.sources.waits
        self._last = Live(status, loop.partitions, loop.running, lag, failure, shown(loop.stands), waits)
        return self._last


class _Ends:
    """Where topics end: as the application saw it, or as a client of its own says while a long batch runs."""

    def __init__(self) -> None:
        self._log: TopicLog | None = None
        self._asked = 0.0
        self._found: Mapping[TopicPartition, int] = {}
        self._lock = threading.Lock()

    def lag(self, loop: Loop, last: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
        """Records that wait, by topic and partition; ``last``: the result if that cannot be known now."""
        try:
            positions = loop.sources.consumed()
            with self._lock:
                ends = self._newest(loop, positions)
        except (CrossStreamError, RuntimeError):  # no broker answers; partitions were found meanwhile
            return last
        found: dict[str, dict[int, int]] = {}
        for tp, position in sorted(positions.items()):
            found.setdefault(tp.topic, {})[tp.partition] = max(0, ends.get(tp, position) - position)
        return found

    def _newest(self, loop: Loop, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        seen, ends = loop.ends
        now = time.monotonic()
        if now - seen < FRESH_SECONDS or loop.connection is None:
            return ends
        if now - self._asked >= ASK_SECONDS:
            self._asked = now
            if self._log is None:
                self._log = loop.connection.log()
            self._found = self._log.end_offsets(sorted(positions))
        return {tp: max(ends.get(tp, 0), self._found.get(tp, 0)) for tp in positions}

    def close(self) -> None:
        """Closes the client."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(CrossStreamError):
                log.close()
