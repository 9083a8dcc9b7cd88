from __future__ import annotations

from tests.kafka.conftest import broker_connection, broker_info, log, proxy
from tests.spark.fixtures import sessions, spark, world

__all__ = ["broker_connection", "broker_info", "log", "proxy", "sessions", "spark", "world"]
