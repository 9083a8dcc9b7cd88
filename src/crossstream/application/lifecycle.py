"""The life of an application: its statuses, the ways from one to another, and who waits for what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Literal

from crossstream.error_codes import refuse
from crossstream.errors import type_and_text

Status = Literal["created", "running", "paused", "stopping", "stopped", "failed"]

TRANSITIONS: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        "created": frozenset({"running", "stopped", "failed"}),
        "running": frozenset({"stopping", "stopped", "failed"}),
        "stopping": frozenset({"stopped", "failed"}),
        "stopped": frozenset({"running", "stopped", "failed"}),
        "failed": frozenset(),
    }
)
"""What may follow each status. ``paused`` is no step: it is what ``running`` is called during a pause.

Batches of `process_available` run in the status that the application has: created or stopped.
"""


class Lifecycle:
    """The status of one application, which changes from several threads.

    - A thread that runs batches does so in `running_batches`; a function of the user that it calls `is_inside`.
    - A pause holds batches back until `resume`: threads wait for `resumed`.
    - `halt` ends what runs after its batch: what began before has the event ``stop`` of its time.
    - Threads that wait for something to be processed are in `wait_for`; each change that matters to them calls `wake`.
    """

    def __init__(self) -> None:
        self._status: Status = "created"
        self._turn = threading.Condition()
        self._runner: int | None = None
        self.waiters = 0
        """How many threads are in `wait_for`: what is there is asked for, and no batch waits for what may come."""
        self._error: Exception | None = None
        self.failure: str | None = None
        """What the application failed with."""
        self.resumed = threading.Event()
        self.resumed.set()
        self.stop = threading.Event()
        """Set when what runs now is to end."""
        self.over = threading.Event()
        """Set when the batches in the background have ended."""
        self.closes_itself = False
        """Whether a function of its own batch has stopped the application: who runs the batch closes it."""

    @property
    def status(self) -> Status:
        return "paused" if self._status == "running" and self.is_paused else self._status

    def is_in(self, *statuses: Status) -> bool:
        """Whether the status is one of these, without regard to a pause."""
        return self._status in statuses

    def move(self, status: Status) -> bool:
        """Changes the status; False where `TRANSITIONS` has no such way: the status is unchanged."""
        with self._turn:
            is_legal = status in TRANSITIONS[self._status]
            if is_legal:
                self._status = status
            return is_legal

    def begin(self) -> None:
        """Batches in the background begin."""
        self.over = threading.Event()
        self.move("running")

    def fail(self, error: Exception) -> None:
        """The application has failed; `take_error` gives the error once."""
        with self._turn:
            if self._status != "failed":
                self._error, self.failure = error, str(error)
                self._status = "failed"

    def take_error(self) -> Exception | None:
        error, self._error = self._error, None
        return error

    # -- pauses

    @property
    def is_paused(self) -> bool:
        return not self.resumed.is_set()

    def pause(self) -> None:
        self.resumed.clear()
        self.wake()

    def resume(self) -> None:
        self.resumed.set()

    # -- ends

    def halt(self) -> None:
        """Ends what runs after its batch; what begins from now on has another event."""
        stop, self.stop = self.stop, threading.Event()
        stop.set()

    # -- who runs batches, and who waits

    @contextmanager
    def running_batches(self) -> Iterator[None]:
        """This thread runs batches."""
        self._runner = threading.get_ident()
        try:
            yield
        finally:
            self._runner = None

    @property
    def is_inside(self) -> bool:
        """Whether this thread runs batches: it cannot wait for their end."""
        return self._runner == threading.get_ident()

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Waits until it is done, as looked at whenever something changes."""
        with self._turn:
            self.waiters += 1
            try:
                self._turn.wait_for(is_done)
            finally:
                self.waiters -= 1

    def wake(self) -> None:
        """Something has changed."""
        with self._turn:
            self._turn.notify_all()


def raisable(error: BaseException) -> Exception:
    """The error of a thread for others to raise: sys.exit() would end it in silence."""
    if isinstance(error, Exception):
        return error
    what = f"a function that the application calls in a thread of its own raised {type_and_text(error)}"
    step = "call stop() where the application was started; in a function or a listener raise an error instead"
    return refuse("CS-591", what, step)
