from __future__ import annotations

from tests.laws.conftest import clock
from tests.spark.fixtures import either_world, sessions, spark, world

__all__ = ["clock", "either_world", "sessions", "spark", "world"]
