"""What arrives of values that plain pickles lose."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

from crossstream.serdes import shipping

SMALL = pl.when(pl.col("a") < 2).then(pl.col("a"))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (SMALL, [1, None, None]),
        (SMALL.when(pl.col("a") < 3).then(20), [1, 20, None]),
        (SMALL.otherwise(0), [1, 0, 0]),
        (SMALL + 1, [2, None, None]),
    ],
    ids=["then", "chained", "otherwise", "within"],
)
def test_conditional_expressions(sent, expected):
    """With an ``otherwise`` and without: Polars has a class of its own for those without."""
    arrived = pickle.loads(shipping.dumps([sent]))[0]
    assert pl.DataFrame({"a": [1, 2, 3]}).select(x=arrived)["x"].to_list() == expected
