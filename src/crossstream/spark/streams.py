"""SparkStreams: an application, from its topics through Spark to its topics."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pyspark.sql import SparkSession

from crossstream.api.topology import Topology, check_config, check_topology
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
from crossstream.spark.driver import Engine
from crossstream.spark.errors import jvm_ended, raisable, unpacked
from crossstream.spark.progress import call_listener, check_listener, html_of, show_live
from crossstream.spark.session import SHARED, SessionUse, check_session
from crossstream.spark.topics import connection_of
from crossstream.spark.window import Health, Window
from crossstream.storage.bucket import is_uri
from crossstream.storage.root import root_of
from crossstream.task.batch import settings_of

logger = logging.getLogger("crossstream")

Status = Literal["created", "running", "paused", "stopping", "stopped", "failed"]

IDLE_SECONDS, MOST_IDLE_SECONDS = 0.01, 0.05
"""Pause between two looks for new records, at first and after some seconds without any."""


class SparkStreams(PointsToNames):
    """Runs a topology on Spark. A context manager.

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
        if spark is not None:
            check_session(spark)
            SHARED.leave(spark)
        self.topology = topology
        self.config = config
        self.plan = plan_topology(topology)
        self._session = SessionUse(config.application_id, config.spark, spark)
        # Both places absolute: the process may change its folder.
        state, topics = config.state_path, config.topics_path
        self._state = root_of(state if is_uri(state) else Path(state).absolute())
        self._settled = config if topics is None else replace(config, topics_dir=Path(topics).absolute())
        self._engine: Engine | None = None
        self._thread: threading.Thread | None = None
        self._calls = threading.RLock()
        self._runner: int | None = None
        self._closes_itself = False
        self._stop = threading.Event()
        self._over = threading.Event()
        self._resumed = threading.Event()
        self._resumed.set()
        self._error: Exception | None = None
        self._status: Status = "created"
        self._progress = Progress()
        self._turn = threading.Condition()
        self._health = Health(config.health_host, config.health_port, config.health_patience_ms / 1000)
        self._listeners: list[Callable[[Progress], None]] = []
        self._token = secrets.token_hex(16)
        self._window = Window(topology, self.plan, self._settled, self._state, self._live, self._why)
        self._failure: str | None = None

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
        return "paused" if self._status == "running" and self.is_paused else self._status

    @property
    def is_paused(self) -> bool:
        """Whether no batch begins, because of `pause`."""
        return not self._resumed.is_set()

    def pause(self) -> None:
        """Lets no other batch begin until `resume`; one that runs is finished. Returns at once.

        No record that is written to a topic after the call is read before `resume`.
        State stays open and can be queried, and no other application may take it. Before `start`, and after `stop`,
        it counts for the next start. Source: KIP-834.
        """
        self._resumed.clear()
        self._wake()

    def resume(self) -> None:
        """Lets batches begin again after `pause`. Stream time did not move with the clock meanwhile."""
        self._resumed.set()

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
        session = getattr(self._engine, "spark", None)
        return None if session is None else getattr(session.sparkContext, "uiWebUrl", None)

    @property
    def ui_address(self) -> str | None:
        """The address of the page, with its token if it needs one; None without ``ui_port`` or before the start."""
        return self._window.ui_address

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
            if self._status == "running":
                return
            raise _called_inside("start()")
        with self._calls:
            if self._status == "running":
                return
            if self._status == "stopping":
                self._end_thread()
            self._refuse_failed()
            self._health.open()
            logger.info("%s: starts", self.config.application_id)
            try:
                self._health.begin("the start")
                engine = self._open()
            except BaseException:
                self._health.close()
                raise
            self._over = threading.Event()
            self._status = "running"
            self._thread = threading.Thread(
                target=self._loop,
                args=(engine, self._stop, self._over),
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
        stop = self._stop
        with self._calls:
            self._raise_error()
            self._refuse_failed()
            if stop.is_set() or self._status == "stopping":
                raise self._stopped_early()
            self._refuse_paused()
            if self._status != "running":
                self._process(stop)
                return
            engine, over = self._open(), self._over
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
        if self._status == "running":
            self._status = "stopping"
        self._halt()
        if self._is_inside():
            self._closes_itself = True
            return
        with self._calls:
            self._halt()  # also what was started while this waited
            self._end_thread()
            self._closes_itself = False
            self._health.close()
            if self._status != "failed":
                self._note_stopped()
            self._window.close()
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

    def _open(self) -> Engine:
        if self._engine is None:
            try:
                self._engine = self._opened()
            except BaseException as error:
                self._session.release()
                self._window.close()
                if isinstance(error, CrossStreamError):
                    self._placed(error)
                raise
        return self._engine

    def _opened(self) -> Engine:
        engine = Engine(self.topology, self.plan, self._settled, self._state, self._on_progress, self._token)
        engine.resumed = self._resumed
        try:
            self._window.open(engine)
            engine.open(self._session.open)
            self._window.note_open()
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

    def _halt(self) -> None:
        """Ends what runs after its batch; what begins from now on has another event."""
        stop, self._stop = self._stop, threading.Event()
        stop.set()

    def _is_inside(self) -> bool:
        """Whether the thread that runs the batches calls, which cannot wait for their end."""
        engine = self._engine
        return self._runner == threading.get_ident() or (engine is not None and engine.runs_here)

    def _process(self, stop: threading.Event) -> None:
        """Batches in this thread, until everything is processed."""
        through = False
        self._runner = threading.get_ident()
        try:
            through = self._run_through(self._open(), stop)
        finally:
            self._runner = None
            if self._closes_itself or self._status == "failed":
                self._end()
        self._check_processed(through)

    def _run_through(self, engine: Engine, stop: threading.Event) -> bool:
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

    def _await_processed(self, engine: Engine, over: threading.Event) -> None:
        """Waits for the started application to have processed what there is."""
        known = dict(engine.inputs.planner.topic_ids)
        ends, rows = engine.inputs.end_offsets_from_outside(), threading.Event()
        engine.call_when_rows_are_through(lambda: self._set(rows))

        def is_processed() -> bool:
            return rows.is_set() and engine.inputs.reached(ends, known)

        with self._turn:
            engine.hurried += 1  # what is there is asked for: nothing waits for what may come
            try:
                self._turn.wait_for(lambda: is_processed() or over.is_set() or self.is_paused)
            finally:
                engine.hurried -= 1
        self._check_processed(is_processed())

    def _live(self) -> tuple[Engine | None, str, str | None]:
        """What is watched: the engine, the status, what it failed with."""
        return self._engine, self.status, self._failure

    def _set(self, event: threading.Event) -> None:
        """Sets an event, and wakes the threads that wait in `process_available`."""
        event.set()
        self._wake()

    def _wake(self) -> None:
        with self._turn:
            self._turn.notify_all()

    def _loop(self, engine: Engine, stop: threading.Event, over: threading.Event) -> None:
        self._runner = threading.get_ident()
        pause = (self.config.trigger_ms or 0) / 1000
        idle = IDLE_SECONDS
        try:
            engine.feed(once=False)
            while not stop.is_set():
                if self.is_paused:
                    self._health.rest("paused", ready=False)
                    self._resumed.wait(MOST_IDLE_SECONDS)
                    engine.note_pause()
                    continue
                started = time.monotonic()
                self._health.begin("a batch")
                worked = engine.run_next()
                self._health.rest("waiting for records" if not worked else "between two batches")
                if engine.hurried:  # what is waited for may be gone, with its topic, without a batch
                    self._wake()
                idle = IDLE_SECONDS if worked else min(idle * 1.01, MOST_IDLE_SECONDS)
                rest = pause - (time.monotonic() - started) if pause else (0.0 if worked else idle)
                if rest > 0:
                    stop.wait(min(rest, threading.TIMEOUT_MAX))
        except BaseException as error:
            self._fail(raisable(error))
        finally:
            self._runner = None
            if self._status != "failed":
                self._health.rest("stopping", ready=False)
            engine.finish()
            self._set(over)
            if self._closes_itself or self._status == "failed":
                self._end()
            else:
                engine.release()

    def _on_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._window.add(progress)
        self._wake()
        for listener in self._listeners:
            call_listener(listener, progress)

    def _refuse_failed(self) -> None:
        if self._status == "failed":
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
        lost = not isinstance(error, CrossStreamError) and self._session.has_lost_jvm()
        self._error = self._placed(jvm_ended() if lost else unpacked(error, self._token))
        if self._error is not error:
            self._error.__cause__ = error
        self._failure = str(self._error)
        self._status = "failed"
        self._health.fail(self._error)
        logger.error("%s: failed: %s", self.config.application_id, self._error)

    def _placed(self, error: CrossStreamError) -> CrossStreamError:
        """The error; one without any location names the application."""
        is_placed = any(value is not None for value in error.where.values())
        return error if is_placed else error.at(application=self.config.application_id)

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _close(self) -> None:
        try:
            self._close_engine()
        finally:
            self._session.release()

    def _close_engine(self) -> None:
        """Where a batch was interrupted only the state shows what is done: the next engine begins from there."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _end(self) -> None:
        """Closes an application that a function of its own batch has stopped, or that has failed."""
        self._closes_itself = False
        try:
            self._close()
        except Exception as error:
            if self._status != "failed":
                self._fail(error)
        if self._status != "failed":
            self._note_stopped()
            self._window.close()

    def _note_stopped(self) -> None:
        if self._status in ("running", "stopping"):
            last = self._progress.batch
            done = "no batch" if last < 0 else f"batch {last}"
            logger.info("%s: stopped after %s", self.config.application_id, done)
        self._status = "stopped"


def _called_inside(what: str) -> ConfigError:
    return ConfigError(
        f"{what} was called by a function that a batch of the same application calls: it would wait for itself",
        code="CS-233",
        where=caller_location(),
        next="call it in another thread, or when process_available() has returned; stop() may be called",
    )
