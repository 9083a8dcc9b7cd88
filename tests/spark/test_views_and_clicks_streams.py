"""Views and clicks as streams, on Spark: the figures of tests/conformance, in one batch.

Each time they run in the test driver, which `test_stream_conformance` compares with Spark.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.figure import Engine, Spark
from tests.operators.stream_join.vectors.test_views_and_clicks import *  # noqa: F403 - the tests, with another engine
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def engine(spark: Any, world: World) -> Engine:
    return Spark(spark, world)
