"""SparkStreams: an application, from its topics through Spark to its topics."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from crossstream.api.topology import Topology, check_config, check_topology
from crossstream.application.background import run_batches
from crossstream.application.health import Health
from crossstream.application.html import html_of, show_live
from crossstream.application.inputs import connection_of
from crossstream.application.lifecycle import Lifecycle, Status, raisable
from crossstream.application.listeners import call_listener, check_listener
from crossstream.application.local import LocalRounds, check_local
from crossstream.application.loop import Loop
from crossstream.application.monitoring import Monitoring
from crossstream.application.rounds import Rounds
from crossstream.catalog.planners import plan_topology
from crossstream.config import StreamsConfig
from crossstream.durations import to_timeout
from crossstream.errors import ConfigError, CrossStreamError, caller_location
from crossstream.metrics.observation import Progress, Running
from crossstream.missing_names import PointsToNames
from crossstream.query.files import open_own
from crossstream.query.store import StoreReader
from crossstream.query.views import view_of_folder
from crossstream.recompute.reason import Why
from crossstream.recompute.why import why
from crossstream.storage.bucket import is_uri
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
        self.plan = plan_topology(topology)
        # Both places absolute: the process may change its folder.
        state, topics = config.state_path, config.topics_path
        self._state = root_of(state if is_uri(state) else Path(state).absolute())
        self._settled = config if topics is None else replace(config, topics_dir=Path(topics).absolute())
        self._engine: Loop | None = None
        self._thread: threading.Thread | None = None
        self._calls = threading.RLock()
        self._life = Lifecycle()
        self._progress = Progress()
        self._health = Health(config.health_host, config.health_port, config.health_patience_ms / 1000)
        self._listeners: list[Callable[[Progress], None]] = []
        self._monitoring = Monitoring(topology, self.plan, self._settled, self._state, self._live, self._why)

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
        return self._life.status

    @property
    def is_paused(self) -> bool:
        """Whether no batch begins, because of `pause`."""
        return self._life.is_paused

    def pause(self) -> None:
        """Lets no other batch begin until `resume`; one that runs is finished. Returns at once.

        No record that is written to a topic after the call is read before `resume`.
        State stays open and can be queried, and no other application may take it. Before `start`, and after `stop`,
        it counts for the next start. Source: KIP-834.
        """
        self._life.pause()

    def resume(self) -> None:
        """Lets batches begin again after `pause`. Stream time did not move with the clock meanwhile."""
        self._life.resume()

    @property
    def progress(self) -> Progress:
        """What the last batch did."""
        return self._progress

    @property
    def running(self) -> Running | None:
        """The batch that runs now: its number, since when, and how many records it takes; None between two."""
        engine = self._engine
        return None if engine is None else engine.running

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
        self._listeners.append(listener)

    def start(self) -> None:
        """Starts the application; returns when it is running (state opened, topics found).

        One that is just being stopped has ended before. Raises `ConfigError` CS-233 if a batch calls it.
        """
        if self._is_inside():
            if self._life.is_in("running"):
                return
            raise _called_inside("start()")
        with self._calls:
            if self._life.is_in("running"):
                return
            if self._life.is_in("stopping"):
                self._end_thread()
                self._note_stopped()
            self._refuse_failed()
            self._health.open()
            logger.info("%s: starts", self.config.application_id)
            try:
                self._health.begin("the start")
                engine = self._open()
            except BaseException:
                self._health.close()
                raise
            self._life.begin()
            self._thread = threading.Thread(
                target=self._run_in_background,
                args=(engine, self._life.stop, self._life.over),
                name=f"crossstream {self.config.application_id}",
                daemon=True,
            )
            self._thread.start()

    def process_available(self) -> None:
        """Processes and commits every record that is in the topics, and every row of DataFrames, at this moment.

        Ctrl-C in it loses nothing: the next call continues from the last commit, and repeats the batch that ran.
        Several threads may call it: of an application that was not started one call follows the other, and
        `start` waits for them. Raises what the application fails with; `ConfigError` CS-233 if it had failed before,
        if it is paused or stopped, or in a listener or another function that a batch calls.
        """
        if self._is_inside():
            raise _called_inside("process_available()")
        stop = self._life.stop
        with self._calls:
            self._raise_error()
            self._refuse_failed()
            if stop.is_set() or self._life.is_in("stopping"):
                raise self._stopped_early()
            self._refuse_paused()
            if not self._life.is_in("running"):
                self._process(stop)
                return
            engine, over = self._open(), self._life.over
        self._await_processed(engine, over)

    def await_termination(self, timeout: timedelta | float | str | None = None) -> bool:
        """Waits until the application has stopped (True) or ``timeout`` has passed (False).

        A number means seconds, unlike elsewhere; a text such as ``"1 minute"`` and a `timedelta` say what they mean.
        Raises what the application failed with; `ConfigError`: CS-210 no duration, CS-233 called by a listener, or
        another function that a batch calls.
        """
        seconds = None if timeout is None else to_timeout(timeout)
        if self._is_inside():
            raise _called_inside("await_termination()")
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                return False
        self._raise_error()
        return True

    def stop(self) -> None:
        """Stops after the running batch and releases everything; raises the error it failed with, if any.

        Called by a listener, or another function that a batch calls, it returns at once: the batch is finished first.
        """
        self._life.move("stopping")  # if it runs
        self._life.halt()
        if self._is_inside():
            self._life.closes_itself = True
            return
        with self._calls:
            self._life.halt()  # also what was started while this waited
            self._end_thread()
            self._life.closes_itself = False
            self._health.close()
            self._note_stopped()
            self._monitoring.close()
            self._raise_error()

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
        connection, settings = connection_of(self._settled), settings_of(self.config)
        return why(self._state, self.plan, connection, store, key, settings, as_of=as_of, seconds=seconds)

    def _open(self) -> Loop:
        if self._engine is None:
            try:
                self._engine = self._opened()
            except BaseException as error:
                self._rounds.release()
                self._monitoring.close()
                if isinstance(error, CrossStreamError):
                    self._placed(error)
                raise
        return self._engine

    def _opened(self) -> Loop:
        engine = Loop(
            self.topology, self.plan, self._settled, self._state, self._rounds, self._on_progress, self._life
        )
        try:
            self._monitoring.open(engine)
            engine.open()
            self._monitoring.note_open()
        except BaseException:
            engine.close()
            raise
        return engine

    def _end_thread(self) -> None:
        """Waits for the batches in the background to end, and closes what they ran in."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    def _is_inside(self) -> bool:
        """Whether the thread that runs the batches calls, which cannot wait for their end."""
        engine = self._engine
        return self._life.is_inside or (engine is not None and engine.runs_here)

    def _process(self, stop: threading.Event) -> None:
        """Batches in this thread, until everything is processed."""
        through = False
        try:
            with self._life.running_batches():
                through = self._run_through(self._open(), stop)
        finally:
            if self._life.closes_itself or self._life.is_in("failed"):
                self._end()
        self._check_processed(through)

    def _run_through(self, engine: Loop, stop: threading.Event) -> bool:
        try:
            through = engine.run_until(engine.inputs.end_offsets(), lambda: stop.is_set() or self.is_paused)
            if not through and not stop.is_set():
                self._close_engine()  # with the query of DataFrame rows that the pause has ended
            return through
        except Exception as error:
            self._fail(error)
            return False
        except BaseException:
            self._close_engine()
            raise

    def _await_processed(self, engine: Loop, over: threading.Event) -> None:
        """Waits for the started application to have processed what there is."""
        known = dict(engine.inputs.planner.topic_ids)
        ends, rows = engine.inputs.end_offsets_from_outside(), threading.Event()
        engine.call_when_rows_are_through(lambda: self._set(rows))

        def is_processed() -> bool:
            return rows.is_set() and engine.inputs.reached(ends, known)

        self._life.wait_for(lambda: is_processed() or over.is_set() or self.is_paused)
        self._check_processed(is_processed())

    def _live(self) -> tuple[Loop | None, str, str | None]:
        """What is watched: the engine, the status, what it failed with."""
        return self._engine, self.status, self._life.failure

    def _set(self, event: threading.Event) -> None:
        """Sets an event, and wakes the threads that wait in `process_available`."""
        event.set()
        self._life.wake()

    def _run_in_background(self, engine: Loop, stop: threading.Event, over: threading.Event) -> None:
        try:
            with self._life.running_batches():
                run_batches(engine, self._life, self._health, stop, self.config.trigger_ms)
        except BaseException as error:
            self._fail(raisable(error))
        finally:
            if not self._life.is_in("failed"):
                self._health.rest("stopping", ready=False)
            engine.finish()
            self._set(over)
            if self._life.closes_itself or self._life.is_in("failed"):
                self._end()
            else:
                engine.release()

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._monitoring.add(progress)
        self._life.wake()
        for listener in self._listeners:
            call_listener(listener, progress)

    def _refuse_failed(self) -> None:
        if self._life.is_in("failed"):
            raise self._refusal("this application has failed", "make a new SparkStreams to run it again")

    def _refuse_paused(self) -> None:
        if self.is_paused:
            step = "call resume(), then process_available()"
            raise self._refusal("the application is paused: no batch begins", step)

    def _check_processed(self, is_processed: bool) -> None:
        """At the end of `process_available`: raises why not all is processed."""
        self._raise_error()
        if not is_processed:
            self._refuse_paused()
            raise self._stopped_early()

    def _stopped_early(self) -> ConfigError:
        return self._refusal(
            "the application was stopped before it had processed every record",
            "call process_available() before stop(); what is left is processed by the next run",
        )

    def _refusal(self, what: str, step: str) -> ConfigError:
        return ConfigError(what, code="CS-233", where={"application": self.config.application_id}, next=step)

    def _fail(self, error: Exception) -> None:
        failure = self._placed(self._rounds.ours(error))
        if failure is not error:
            failure.__cause__ = error
        self._life.fail(failure)
        self._health.fail(failure)
        logger.error("%s: failed: %s", self.config.application_id, failure)

    def _placed(self, error: CrossStreamError) -> CrossStreamError:
        """The error; one without any location names the application."""
        is_placed = any(value is not None for value in error.where.values())
        return error if is_placed else error.at(application=self.config.application_id)

    def _raise_error(self) -> None:
        error = self._life.take_error()
        if error is not None:
            raise error

    def _close(self) -> None:
        try:
            self._close_engine()
        finally:
            self._rounds.release()

    def _close_engine(self) -> None:
        """Where a batch was interrupted only the state shows what is done: the next engine begins from there."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _end(self) -> None:
        """Closes an application that a function of its own batch has stopped, or that has failed."""
        self._life.closes_itself = False
        try:
            self._close()
        except Exception as error:
            if not self._life.is_in("failed"):
                self._fail(error)
        if not self._life.is_in("failed"):
            self._note_stopped()
            self._monitoring.close()

    def _note_stopped(self) -> None:
        if self._life.is_in("running", "stopping"):
            last = self._progress.batch
            done = "no batch" if last < 0 else f"batch {last}"
            logger.info("%s: stopped after %s", self.config.application_id, done)
        self._life.move("stopped")  # unless it has failed


def rounds_of(topology: Topology, config: StreamsConfig, spark: SparkSession | None) -> Rounds:
    """What runs the batches of an application. ``spark``: a session of the user, which is checked.

    Raises `ConfigError`: CS-201 for a topology that the local engine cannot run, CS-232 for a session that cannot be
    used.
    """
    if config.engine == "local":
        if spark is not None:
            raise ConfigError(
                'a Spark session was given, and engine="local" uses none',
                code="CS-232",
                where=caller_location(),
                next="leave one of the two out",
            )
        check_local(topology)
        return LocalRounds()
    from crossstream.spark.rounds import SparkRounds
    from crossstream.spark.session import SHARED, SessionUse, check_session

    if spark is not None:
        check_session(spark)
        SHARED.leave(spark)
    use = SessionUse(config.application_id, config.spark, spark)
    return SparkRounds(topology, config, use, secrets.token_hex(16))


def _called_inside(what: str) -> ConfigError:
    return ConfigError(
        f"{what} was called by a function that a batch of the same application calls: it would wait for itself",
        code="CS-233",
        where=caller_location(),
        next="call it in another thread, or when process_available() has returned; stop() may be called",
    )
