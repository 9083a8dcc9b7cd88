"""`cs.register`: makes the format ``crossstream`` known to a session of Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from crossstream.error_codes import refuse
from crossstream.spark.store_source import NAME, StoreSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSH = "spark.sql.python.filterPushdown.enabled"
_MARK = "_crossstream_changes"


def register(spark: SparkSession) -> None:
    """Makes the stores of applications tables of Spark: ``spark.read.format("crossstream")``, and ``spark.readStream``.

    ``spark``: a session, also of Spark Connect or of a pipeline, whose Python workers have crossstream installed. It
    pushes filters into Python data sources from now on (``spark.sql.python.filterPushdown.enabled``). Raises
    `ConfigError` CS-201 for what is no session. Source: docs/stores-in-spark.md.

    >>> import crossstream as cs
    >>> cs.register(None)
    Traceback (most recent call last):
    crossstream.errors.ConfigError: [CS-201] register takes a session of Spark, not None
      next:  write cs.register(spark), with spark = SparkSession.builder.getOrCreate()
    """
    sources = getattr(spark, "dataSource", None)
    if sources is None:
        step = "write cs.register(spark), with spark = SparkSession.builder.getOrCreate()"
        raise refuse("CS-201", f"register takes a session of Spark, not {spark!r}", step)
    sources.register(StoreSource)
    if hasattr(DataSourceReader, "pushFilters") and spark.conf.get(_PUSH, "false") != "true":
        with suppress(PySparkException):  # a file of a pipeline may set nothing; the pipeline itself may
            spark.conf.set(_PUSH, "true")
    for reader in _stream_readers(spark):
        _ask_for_changes(reader)


def _stream_readers(spark: SparkSession) -> list[Any]:
    """The classes that read streams in this process: of the session, and of PySpark itself."""
    return [type(spark.readStream), DataStreamReader]


def _ask_for_changes(reader: Any) -> None:
    """A Python source has one schema for tables and streams. Spark does not say which is read: an option does.

    Decision 0042.
    """
    original: Callable[[Any, str], Any] = reader.format
    if getattr(original, _MARK, False):
        return

    @wraps(original)
    def format(self: Any, source: str) -> Any:
        made = original(self, source)
        return made.option("changes", "true") if source.lower() == NAME else made

    setattr(format, _MARK, True)
    reader.format = format
