"""SparkStreams: an application, from its topics through Spark to its topics."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from crossstream.api.topology import Topology, check_config, check_topology
from crossstream.application.html import html_of, show_live
from crossstream.application.inputs import connection_of
from crossstream.application.lifecycle import Lifecycle, Status
from crossstream.application.listeners import check_listener
from crossstream.application.local import LocalRounds, check_local
from crossstream.application.loop import Loop
from crossstream.application.monitoring import Monitoring
from crossstream.application.rounds import Rounds
from crossstream.application.runner import ApplicationRunner
from crossstream.catalog.planners import plan_topology
from crossstream.config import StreamsConfig
from crossstream.durations import to_timeout
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.metrics.observation import Progress, Running
from crossstream.missing_names import PointsToNames
from crossstream.planning.meanings import noted
from crossstream.query.files import open_own
from crossstream.query.store import StoreReader
from crossstream.query.views import view_of_folder
from crossstream.recompute.reason import Why
from crossstream.recompute.why import why
from crossstream.storage.bucket import is_uri
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of
from crossstream.task.batch import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("crossstream")


class SparkStreams(PointsToNames):
    """Runs a topology on Spark, or with ``engine="local"`` in this process. A context manager.

    ``spark``: a session to run in, which is checked and used unchanged; None makes one with the right settings, which
    stops with the last application of the process that uses it, when that has stopped or failed.
    `start` runs batches in the background until `stop`; `process_available` takes the records there are at this
    moment, processes and commits them, and returns. Raises `ConfigError`, `StateError`, `SourceError`; errors of
    the running application are raised by `await_termination`, `process_available` and `stop`.

    >>> from crossstream import Consumed, StreamsBuilder, StreamsConfig, serdes
    >>> builder = StreamsBuilder()
    >>> builder.stream("in", Consumed(key=serdes.string(), value=serdes.json())).to("out")
    >>> with SparkStreams(builder.build(), StreamsConfig(application_id="relay", topics_dir="topics")) as app:
    ...     app.status  # running after app.start(), which makes a session
    'created'
    """

    def __init__(self, topology: Topology, config: StreamsConfig, spark: SparkSession | None = None) -> None:
        check_topology("SparkStreams", topology)
        check_config("SparkStreams", config)
        self.topology = topology
        self.config = config
        self._rounds = rounds_of(topology, config, spark)
        self._make_rounds = partial(rounds_of, spark=spark)
        self.plan = plan_topology(topology)
        # Both places absolute: the process may change its folder.
        state, topics = config.state_path, config.topics_path
        self._state = root_of(state if is_uri(state) else Path(state).absolute())
        self._settled = config if topics is None else replace(config, topics_dir=Path(topics).absolute())
        self._monitoring = Monitoring(topology, self.plan, self._settled, self._state, self._live, self._why)
        self._runner = ApplicationRunner(config, self._loop, self._rounds, self._monitoring)

    def __enter__(self) -> SparkStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except CrossStreamError:
            if kind is None:
                raise

    @property
    def status(self) -> Status:
        """created, running, paused, stopping, stopped or failed."""
        return self._runner.life.status

    @property
    def is_paused(self) -> bool:
        """Whether no batch begins, because of `pause`."""
        return self._runner.life.is_paused

    def pause(self) -> None:
        """Lets no other batch begin until `resume`; one that runs is finished. Returns at once.

        No record that is written to a topic after the call is read before `resume`.
        State stays open and can be queried, and no other application may take it. Before `start`, and after `stop`,
        it counts for the next start. Source: KIP-834.
        """
        self._runner.life.pause()

    def resume(self) -> None:
        """Lets batches begin again after `pause`. Stream time did not move with the clock meanwhile."""
        self._runner.life.resume()

    @property
    def progress(self) -> Progress:
        """What the last batch did, and what is waited for now: ``waits``."""
        return self._runner.seen()

    @property
    def running(self) -> Running | None:
        """The batch that runs now: its number, since when, and how many records it takes; None between two."""
        loop = self._runner.loop
        return None if loop is None else loop.running

    @property
    def spark_ui_address(self) -> str | None:
        """The address of Spark's own pages, where its session has them; None before the start and after the end."""
        return self._rounds.ui_address

    @property
    def ui_address(self) -> str | None:
        """The address of the page, with its token if it needs one; None without ``ui_port`` or before the start."""
        return self._monitoring.ui_address

    def on_progress(self, listener: Callable[[Progress], None]) -> None:
        """Calls ``listener`` after every committed batch, in the thread that ran it.

        An exception that it raises stops the application: `ProcessingError` CS-591. Raises `ConfigError` CS-201 if it
        cannot be called so.
        """
        check_listener(listener)
        self._runner.listeners.append(listener)

    def start(self) -> None:
        """Starts the application; returns when it is running (state opened, topics found).

        One that is just being stopped has ended before. Raises `ConfigError` CS-233 if a batch calls it.
        """
        self._runner.start()

    def process_available(self) -> None:
        """Processes and commits every record that is in the topics, and every row of DataFrames, at this moment.

        Ctrl-C in it loses nothing: the next call continues from the last commit, and repeats the batch that ran.
        Several threads may call it: of an application that was not started one call follows the other, and
        `start` waits for them. Raises what the application fails with; `ConfigError` CS-233 if it had failed before,
        if it is paused or stopped, or in a listener or another function that a batch calls.
        """
        self._runner.process_available()

    def await_termination(self, timeout: timedelta | float | str | None = None) -> bool:
        """Waits until the application has stopped (True) or ``timeout`` has passed (False).

        A number means seconds, unlike elsewhere; a text such as ``"1 minute"`` and a `timedelta` say what they mean.
        Raises what the application failed with; `ConfigError`: CS-210 no duration, CS-233 called by a listener, or
        another function that a batch calls.
        """
        seconds = None if timeout is None else to_timeout(timeout)
        return self._runner.await_termination(seconds)

    def stop(self) -> None:
        """Stops after the running batch and releases everything; raises the error it failed with, if any.

        Called by a listener, or another function that a batch calls, it returns at once: the batch is finished first.
        """
        self._runner.stop()

    def store(self, name: str) -> StoreReader:
        """A queryable store, or a view; it shows committed batches only. `StateError` CS-710 if there is none."""
        is_store = any(store.public == name for store in self.plan.stores.values())
        view = None if is_store else view_of_folder(self._state, self.plan, name)
        return view or open_own(self._state, self.plan, name)

    def why(self, store: str, key: Any, as_of: int | None = None) -> Why:
        """The input records that made a row of a queryable store, step by step; where a missing row has ended.

        ``key``: of a store of windows or sessions a `Windowed`, or the key inside, for all its windows. ``as_of``: the
        row after this batch, which must be retained. It reads the topics and runs the records of this key alone, in
        this process; the application may run or not. Raises `StateError`: CS-710 if there is no such store, CS-713
        without state; and what reading topics raises. Examples: docs/why.md.
        """
        return self._why(store, key, as_of)

    def _repr_html_(self) -> str:
        """In a notebook: the status, the last batch, the one that runs, and the stores."""
        return html_of(self)

    def _ipython_display_(self) -> None:
        """In a notebook the output follows the application until it ends."""
        show_live(self)

    # -- inside ----------------------------------------------------------------------------------------

    def _why(self, store: str, key: Any, as_of: int | None, seconds: float | None = None) -> Why:
        connection = connection_of(self._settled, self.topology, self._state)
        settings = settings_of(self.config)
        return why(self._state, self.plan, connection, store, key, settings, as_of=as_of, seconds=seconds)

    def _loop(self, on_progress: Callable[[Progress], None], life: Lifecycle) -> Loop:
        if self.config.on_change == "evolve":
            self._take_over()
        to, totals = self._state, self._monitoring.begin()
        return Loop(self.topology, self.plan, self._settled, to, self._rounds, on_progress, life, totals)

    def _take_over(self) -> None:
        """Makes the state that of this topology, where it is of another one."""
        log = BatchLog(self._state)
        found, commit = log.application(), log.last_commit()
        if found is None or commit is None:
            return
        if structs.replace(noted(self.plan), gone=found.topology.gone) == found.topology:
            return
        from crossstream.evolution.evolve import evolve  # a start does not load what few need

        config = replace(self._settled, state_dir=self._state.address)
        self._rounds.start()  # a session of Spark stays for the batches that follow
        done = evolve(self.topology, config, self._make_rounds)
        for reason, asked in done.decision.asked.items():
            nodes = ", ".join(dict.fromkeys(one.node for one in asked))
            logger.warning(
                "%s: functions of %s count as unchanged: %s; if one changed: crossstream evolve --changed, or --all",
                *(config.application_id, nodes, reason),
            )
        if done.commit is not None:
            rows, said = sum(done.sent.values()), (config.application_id, done.commit.id, done.seconds)
            logger.info("%s: took over changed state in batch %d, in %.1f s; sent rows: %d", *said, rows)

    def _live(self) -> tuple[Loop | None, str, str | None]:
        """What is watched: the loop, the status, what the application failed with."""
        return self._runner.loop, self.status, self._runner.life.failure


def rounds_of(topology: Topology, config: StreamsConfig, spark: SparkSession | None) -> Rounds:
    """What runs the batches of an application. ``spark``: a session of the user, which is checked.

    Raises `ConfigError`: CS-201 for a topology that the local engine cannot run, CS-232 for a session that cannot be
    used.
    """
    if config.engine == "local":
        if spark is not None:
            what = 'a Spark session was given, and engine="local" uses none'
            raise refuse("CS-232", what, "leave one of the two out", **caller_location())
        check_local(topology)
        return LocalRounds()
    from crossstream.spark.rounds import SparkRounds
    from crossstream.spark.session import SHARED, SessionUse, check_session

    if spark is not None:
        check_session(spark)
        SHARED.leave(spark)
    use = SessionUse(config.application_id, config.spark, spark)
    return SparkRounds(topology, config, use, secrets.token_hex(16))
