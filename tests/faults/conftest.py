from __future__ import annotations

from tests.spark.fixtures import either_world, sessions, spark, world

__all__ = ["either_world", "sessions", "spark", "world"]
