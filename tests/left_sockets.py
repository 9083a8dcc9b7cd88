"""Sockets that PySpark before 4.2 leaves to the garbage collector, which complains (SPARK-54247)."""

from __future__ import annotations

from importlib import metadata

_VERSION = tuple(int(part) for part in metadata.version("pyspark").split(".")[:2])

FILTERS = ["ignore:unclosed <socket.socket:ResourceWarning"] if _VERSION < (4, 2) else []
"""Filters of warnings, as for ``python -W``: a socket that is left is no failure there."""
