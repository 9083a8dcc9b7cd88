"""The query that hands rows of the DataFrame sources over, one micro-batch after the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crossstream.errors import SourceError
from crossstream.spark.errors import held
from crossstream.spark.frames import start_query
from crossstream.spark.jvm import calling_socket, hang_up


@dataclass(slots=True)
class FrameFeed:
    """Runs the query. ``take``: gets the rows of each micro-batch and its number; what it raises ends the query.

    ``_is_through``: since the last micro-batch the query has looked for rows, and found none. ``_begun``: there is
    a query that goes on for ever, or there will be none. ``_caller``: by which the query's thread has called
    `take`, when that is done.
    """

    take: Callable[[Any, int], None]
    _query: Any = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _is_through: bool = field(default=False, init=False)
    _begun: threading.Event = field(default_factory=threading.Event, init=False)
    _caller: socket.socket | None = field(default=None, init=False)

    def start(self, frame: Any, checkpoint: str, pause: int | None) -> None:
        """Begins to read, if that has not begun: a batch every ``pause`` ms; None: what there is now, and returns."""
        if self._query is not None:
            return
        self._is_through = False
        self._query = start_query(frame, checkpoint, self._run, pause)
        if pause is None:
            self._await()
        else:
            self._begun.set()

    def check(self) -> None:
        """Raises what ended the query, if it has ended; `SourceError` CS-619 if that was not `take`."""
        if self._query is not None and not self._query.isActive:
            self._raise_failure()
            error = self._query.exception()
            raise SourceError(
                f"the query of the DataFrame sources ended: {error or 'it was stopped'}",
                code="CS-619",
                next="see the message of Spark; start the application again",
            )

    def is_behind(self) -> bool:
        """Whether there may be rows to read. While the query looks for some it is as it was before that."""
        if self._query is None:
            return False
        status = self._query.status
        if status["isDataAvailable"]:
            self._is_through = False
        elif not status["isTriggerActive"] and status["message"].startswith("Waiting"):
            self._is_through = True
        return not self._is_through

    def tell_when_through(self, tell: Callable[[], None]) -> None:
        """Calls ``tell`` in another thread when the rows that are there are through; not if the query ends before.

        The caller waits for that, and for other things, in a way that Ctrl-C ends.
        """
        threading.Thread(target=self._await_through, args=(tell,), daemon=True).start()

    def stop(self) -> None:
        """Ends the query; a micro-batch that runs is interrupted."""
        if self._query is not None:
            self._query.stop()
            self._has_ended()
        self._begun.set()

    def _await_through(self, tell: Callable[[], None]) -> None:
        self._begun.wait()
        query = self._query
        if query is None:
            return
        try:
            query.processAllAvailable()
            is_through = query.isActive
        except Exception:  # `check` tells why the query has ended
            return
        if is_through:
            tell()

    def _await(self) -> None:
        """Returns when the query has ended; where the wait is interrupted it has not, and `stop` ends it."""
        try:
            self._query.awaitTermination()
        except Exception:
            self._has_ended()
            self._raise_failure()
            raise
        self._has_ended()
        self._raise_failure()

    def _has_ended(self) -> None:
        """Notes it. Where the query was stopped in `take`, which goes on, its thread is let be."""
        self._query = None
        if self._caller is not None:
            hang_up(self._caller)
            self._caller = None

    def _run(self, frame: Any, epoch: int) -> None:
        self._is_through = False
        self._caller = None
        try:
            self.take(frame, epoch)
        except Exception as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = held(error)
            raise self._failure from error
        finally:
            self._caller = calling_socket()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
