"""The JVM that PySpark drives: whether it still answers, and how a process goes on without it.

A JVM may be killed, for lack of memory say. PySpark keeps it in mind for ever: no session can be made until it has
been forgotten.
"""

from __future__ import annotations

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


def jvm_ended() -> ProcessingError:
    return ProcessingError(
        "Spark's JVM, in which the application ran, has ended",
        code="CS-594",
        next="see Spark's log and the system's for why: out of memory (spark.driver.memory), killed? Then start the "
        "process again, or make a new SparkStreams without a session: it starts another JVM. What was committed stays",
    )
