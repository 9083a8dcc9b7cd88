from __future__ import annotations

from tests.spark.fixtures import sessions, spark, world

__all__ = ["sessions", "spark", "world"]
