"""What runs the batches of a test's application: the fixture ``engine``, with a seat for each.

A law that is not Spark's own runs each time in this process, and nightly on Spark too. Where the copy of functions, the
exchange between workers or a thread of Spark could break it, `on_spark_too` has it there each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

import crossstream as cs

ON_SPARK = "on_spark"
"""In the name of a test: its seat on Spark. `tests.schedule` has those in one process."""


@dataclass(frozen=True, slots=True)
class Engine:
    """``session``: Spark's, None for the local engine."""

    name: Literal["local", "spark"]
    session: Any = None

    def streams(self, topology: cs.Topology, config: cs.StreamsConfig) -> cs.SparkStreams:
        """An application as its user has it."""
        return cs.SparkStreams(topology, replace(config, engine=self.name), self.session)


IN_PROCESS = Engine("local")

LOCAL = pytest.param("local", id="local")
SPARK = pytest.param("spark", id=ON_SPARK, marks=pytest.mark.spark)
NIGHTLY_SPARK = pytest.param("spark", id=ON_SPARK, marks=[pytest.mark.spark, pytest.mark.nightly])

on_spark_too = pytest.mark.parametrize("engine", [LOCAL, SPARK], indirect=True)
only_on_spark = pytest.mark.parametrize("engine", [SPARK], indirect=True)


@pytest.fixture(params=[LOCAL, NIGHTLY_SPARK])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine, new or shared, that applications of a test run on."""
    if request.param == "local":
        return IN_PROCESS
    return Engine("spark", request.getfixturevalue("spark"))
