"""Tables of Postgres that an application on Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.dev import cdc
from tests.databases.tables import PostgresLives, made, server

__all__ = ["server"]

pytestmark = pytest.mark.spark


def test_an_application_on_spark(spark: Any, tmp_path: Path, server: cdc.Postgres) -> None:
    lives = PostgresLives(tmp_path, made(server))
    for words in (("a", "b", "a"), ("a", "c")):
        lives.append(*words)
        with cs.SparkStreams(lives.topology(), lives.world.config(), spark) as app:
            app.process_available()
    assert lives.events() == ["a", "a", "a", "b", "c"]
    assert lives.counts() == {"a": 3, "b": 1, "c": 1}
    assert set(lives.lake.marks().values()) == {1}
