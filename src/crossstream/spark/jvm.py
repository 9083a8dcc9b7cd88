"""The JVM that PySpark drives: whether it still answers, and how a process goes on without it.

A JVM may be killed, for lack of memory say. PySpark keeps it in mind for ever: no session can be made until it has
been forgotten.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from crossstream.errors import ProcessingError


def is_gone(context: SparkContext) -> bool:
    """Whether the JVM of a context that has not been stopped has ended."""
    try:
        context._jsc.version()
    except (OSError, Py4JError):
        return True
    return False


def forget_if_gone() -> None:
    """Lets PySpark start another JVM if the one it knows has ended.

    Raises `ProcessingError` CS-594 if that one had started this process, as spark-submit does: there is no other.
    """
    gateway = SparkContext._gateway
    if gateway is None or _answers(gateway):
        return
    if getattr(gateway, "proc", None) is None:
        raise jvm_ended()
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # nobody is there to be told that it stops
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(OSError, Py4JError):
        gateway.close()


def _answers(gateway: object) -> bool:
    try:
        gateway.jvm.System.nanoTime()  # type: ignore[attr-defined]
    except (OSError, Py4JError):
        return False
    return True


def calling_socket() -> socket.socket | None:
    """What the thread of the JVM that has called this one is connected by; None if none has."""
    client = getattr(SparkContext._gateway, "_gateway_client", None)
    connection = getattr(client, "get_thread_connection", lambda: None)()  # not without PYSPARK_PIN_THREAD
    if connection is None or connection.initiated_from_client:
        return None
    called_by: socket.socket | None = connection.socket
    return called_by


def hang_up(called_by: socket.socket) -> None:
    """Ends the thread that took the calls of a thread of the JVM that has ended: py4j keeps it, and the socket."""
    with suppress(OSError):
        called_by.shutdown(socket.SHUT_RDWR)


def jvm_ended() -> ProcessingError:
    return ProcessingError(
        "Spark's JVM, in which the application ran, has ended",
        code="CS-594",
        next="see Spark's log and the system's for why: out of memory (spark.driver.memory), killed? Then start the "
        "process again, or make a new SparkStreams without a session: it starts another JVM. What was committed stays",
    )
