"""What a worker's process is like."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.spark


def pool_size(_: int) -> int:
    import polars as pl

    return pl.thread_pool_size()


def test_polars_has_one_thread_in_a_worker(spark: Any) -> None:
    """Spark gives each task a core."""
    assert spark.sparkContext.range(4, numSlices=2).map(pool_size).collect() == [1] * 4
