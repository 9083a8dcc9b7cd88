"""The session that crossstream makes: its applications share it, and the last one stops it.

A process has one Spark context. So an application that is to make its own session gets the one that is there:
another application's, which lives on until both have let it go, or the user's, which is the user's to stop and
keeps its settings.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from crossstream.spark.jvm import forget_if_gone
from crossstream.spark.session import check_remote, found_session, has_session, is_running, make_session


class SharedSession:
    """Counts the applications that use the session made here. May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: SparkContext | None = None
        self._users = 0

    def use(self, application_id: str, settings: Mapping[str, Any]) -> SparkSession:
        """A session on the context of this process, made if there is none; to be given to `let_go` once."""
        check_remote(settings)
        with self._lock:
            forget_if_gone()
            if has_session():
                session = found_session(settings)
            else:
                session = make_session(application_id, settings)
                self._made, self._users = session.sparkContext, 0
            if session.sparkContext is self._made:
                self._users += 1
            return session

    def let_go(self, session: SparkSession) -> None:
        """Ends one use; stops the session after the last, if it was made here and still runs."""
        with self._lock:
            if session.sparkContext is not self._made:
                return
            self._users -= 1
            if not self._users:
                self._made = None
                if is_running(session.sparkContext):
                    session.stop()

    def leave(self, session: SparkSession) -> None:
        """From now on the session is the user's, who has passed it to an application: it is not stopped."""
        with self._lock:
            if session.sparkContext is self._made:
                self._made = None


SHARED = SharedSession()
"""The one of this process."""
