"""Runs an application: in the background from `start` to `stop`, or in the thread that calls `process_available`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from crossstream.application.background import run_batches
from crossstream.application.health import Health
from crossstream.application.lifecycle import Lifecycle, raisable
from crossstream.application.listeners import call_listener
from crossstream.application.loop import Loop
from crossstream.application.monitoring import Monitoring
from crossstream.application.rounds import Rounds
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.metrics.observation import Progress

logger = logging.getLogger("crossstream")

MakeLoop = Callable[[Callable[[Progress], None], Lifecycle], Loop]


class ApplicationRunner:
    """Opens the loop of an application, runs its batches, and closes it.

    Its methods may be called from any thread, also by functions of the user that a batch calls. ``make``: a loop that
    calls a function with its progress; ``rounds``: the engine that it runs on.
    """

    def __init__(self, config: StreamsConfig, make: MakeLoop, rounds: Rounds, monitoring: Monitoring) -> None:
        self._name = config.application_id
        self._trigger_ms = config.trigger_ms
        self._make = make
        self._rounds = rounds
        self._monitoring = monitoring
        self._health = Health(config.health_host, config.health_port, config.health_patience_ms / 1000)
        self._health.warnings = self._warnings
        self._thread: threading.Thread | None = None
        self._calls = threading.RLock()
        self.life = Lifecycle()
        self.loop: Loop | None = None
        """The one that is open."""
        self.progress = Progress()
        self.listeners: list[Callable[[Progress], None]] = []

    def start(self) -> None:
        """Batches in the background begin; returns when the state is open and the topics are found."""
        if self._is_inside():
            if self.life.is_in("running"):
                return
            raise _called_inside("start()")
        with self._calls:
            if self.life.is_in("running"):
                return
            if self.life.is_in("stopping"):
                self._end_thread()
                self._note_stopped()
            self._refuse_failed()
            self._health.open()
            logger.info("%s: starts", self._name)
            try:
                self._health.begin("the start")
                loop = self._open()
            except BaseException:
                self._health.close()
                raise
            self.life.begin()
            self._thread = threading.Thread(
                target=self._run_in_background,
                args=(loop, self.life.stop, self.life.over),
                name=f"crossstream {self._name}",
                daemon=True,
            )
            self._thread.start()

    def process_available(self) -> None:
        """Processes what there is: in this thread, or by waiting for the batches in the background."""
        if self._is_inside():
            raise _called_inside("process_available()")
        stop = self.life.stop
        with self._calls:
            self._raise_error()
            self._refuse_failed()
            if stop.is_set() or self.life.is_in("stopping"):
                raise self._stopped_early()
            self._refuse_paused()
            if not self.life.is_in("running"):
                self._process(stop)
                return
            loop, over = self._open(), self.life.over
        self._await_processed(loop, over)

    def await_termination(self, seconds: float | None) -> bool:
        """Whether the batches in the background have ended within so many seconds; None: waits for it."""
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
        """Ends after the batch that runs. A function that this batch calls does not wait for it."""
        self.life.move("stopping")  # if it runs
        self.life.halt()
        if self._is_inside():
            self.life.closes_itself = True
            return
        with self._calls:
            self.life.halt()  # also what was started while this waited
            self._end_thread()
            self.life.closes_itself = False
            self._health.close()
            self._note_stopped()
            self._monitoring.close()
            self._raise_error()

    # -- batches in this thread

    def _process(self, stop: threading.Event) -> None:
        through = False
        try:
            with self.life.running_batches():
                through = self._run_through(self._open(), stop)
        finally:
            if self.life.closes_itself or self.life.is_in("failed"):
                self._end()
        self._check_processed(through)

    def _run_through(self, loop: Loop, stop: threading.Event) -> bool:
        try:
            loop.refreshing.read_due()
            ends = loop.inputs.end_offsets()
            through = loop.run_until(ends, lambda: stop.is_set() or self.life.is_paused)
            if not through and not stop.is_set():
                self._close_loop()  # with the query of DataFrame rows that the pause has ended
            return through
        except Exception as error:
            self._fail(error)
            return False
        except BaseException:
            self._close_loop()
            raise

    # -- batches in the background

    def _run_in_background(self, loop: Loop, stop: threading.Event, over: threading.Event) -> None:
        try:
            with self.life.running_batches():
                run_batches(loop, self.life, self._health, stop, self._trigger_ms)
        except BaseException as error:
            self._fail(raisable(error))
        finally:
            if not self.life.is_in("failed"):
                self._health.rest("stopping", ready=False)
            loop.finish()
            self._set(over)
            if self.life.closes_itself or self.life.is_in("failed"):
                self._end()
            else:
                loop.release()

    def _await_processed(self, loop: Loop, over: threading.Event) -> None:
        """Waits for the started application to have processed what there is."""
        known = dict(loop.inputs.planner.topic_ids)
        ends, transactions = loop.inputs.end_offsets_from_outside()
        rows = threading.Event()
        loop.call_when_rows_are_through(lambda: self._set(rows))

        def is_processed() -> bool:
            return rows.is_set() and loop.inputs.reached(ends, transactions, known)

        self.life.wait_for(lambda: is_processed() or over.is_set() or self.life.is_paused)
        self._check_processed(is_processed())

    def seen(self) -> Progress:
        """The last batch, and what is waited for now."""
        loop = self.loop
        if loop is None or not loop.is_open:
            return self.progress
        return replace(self.progress, waits=loop.sources.waits)

    def _warnings(self) -> tuple[str, ...]:
        loop = self.loop
        return () if loop is None else loop.refreshing.warnings

    def _set(self, event: threading.Event) -> None:
        """Sets an event, and wakes the threads that wait in `process_available`."""
        event.set()
        self.life.wake()

    def _is_inside(self) -> bool:
        """Whether the thread that runs the batches calls, which cannot wait for their end."""
        loop = self.loop
        return self.life.is_inside or (loop is not None and loop.runs_here)

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress
        self._monitoring.note_batch()
        self.life.wake()
        for listener in self.listeners:
            call_listener(listener, progress)

    # -- opening and closing

    def _open(self) -> Loop:
        if self.loop is None:
            try:
                self.loop = self._opened()
            except BaseException as error:
                self._rounds.release()
                self._monitoring.close()
                if isinstance(error, CrossStreamError):
                    self._located(error)
                raise
        return self.loop

    def _opened(self) -> Loop:
        loop = self._make(self._on_progress, self.life)
        try:
            self._monitoring.open(loop)
            loop.open()
            self._monitoring.note_open()
        except BaseException:
            loop.close()
            raise
        return loop

    def _end_thread(self) -> None:
        """Waits for the batches in the background to end, and closes what they ran in."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    def _close(self) -> None:
        try:
            self._close_loop()
        finally:
            self._rounds.release()

    def _close_loop(self) -> None:
        """Where a batch was interrupted only the state shows what is done: the next loop begins from there."""
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.close()

    def _end(self) -> None:
        """Closes an application that a function of its own batch has stopped, or that has failed."""
        self.life.closes_itself = False
        try:
            self._close()
        except Exception as error:
            if not self.life.is_in("failed"):
                self._fail(error)
        if not self.life.is_in("failed"):
            self._note_stopped()
            self._monitoring.close()

    def _note_stopped(self) -> None:
        if self.life.is_in("running", "stopping"):
            last = self.progress.batch
            done = "no batch" if last < 0 else f"batch {last}"
            logger.info("%s: stopped after %s", self._name, done)
        self.life.move("stopped")  # unless it has failed

    # -- failures and refusals

    def _fail(self, error: Exception) -> None:
        failure = self._located(self._rounds.ours(error))
        if failure is not error:
            failure.__cause__ = error
        self.life.fail(failure)
        self._health.fail(failure)
        logger.error("%s: failed: %s", self._name, failure)

    def _located(self, error: CrossStreamError) -> CrossStreamError:
        """The error; one without any location names the application."""
        is_located = any(value is not None for value in error.where.values())
        return error if is_located else error.at(application=self._name)

    def _raise_error(self) -> None:
        error = self.life.take_error()
        if error is not None:
            raise error

    def _check_processed(self, is_processed: bool) -> None:
        """At the end of `process_available`: raises why not all is processed."""
        self._raise_error()
        if not is_processed:
            self._refuse_paused()
            raise self._stopped_early()

    def _refuse_failed(self) -> None:
        if self.life.is_in("failed"):
            raise self._refusal("this application has failed", "make a new SparkStreams to run it again")

    def _refuse_paused(self) -> None:
        if self.life.is_paused:
            step = "call resume(), then process_available()"
            raise self._refusal("the application is paused: no batch begins", step)

    def _stopped_early(self) -> CrossStreamError:
        return self._refusal(
            "the application was stopped before it had processed every record",
            "call process_available() before stop(); what is left is processed by the next run",
        )

    def _refusal(self, what: str, step: str) -> CrossStreamError:
        return refuse("CS-233", what, step, application=self._name)


def _called_inside(what: str) -> CrossStreamError:
    return refuse(
        "CS-233",
        f"{what} was called by a function that a batch of the same application calls: it would wait for itself",
        "call it in another thread, or when process_available() has returned; stop() may be called",
        **caller_location(),
    )
