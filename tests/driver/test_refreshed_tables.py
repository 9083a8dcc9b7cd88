"""The test driver reads a static table again when a test says so."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.errors import ConfigError, SourceError
from crossstream.testing import TopologyTestDriver
from tests.laws.effort import law

TEXT = serdes.string()
ROWS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4)


def topology(rows: dict[str, int]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    rates = builder.global_table_from(
        lambda: pl.DataFrame(
            {"code": list(rows), "rate": list(rows.values())}, schema={"code": pl.String, "rate": pl.Int64}
        ),
        key="code",
        name="rates",
        store="rates",
    )
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
    told = orders.left_join(
        rates, lambda code, rate: str(rate and rate["rate"]), key_selector=lambda code: code
    )
    told.to("told", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@law
@given(
    start=ROWS, tables=st.lists(ROWS, max_size=5), partitions=st.integers(1, 3), every=st.sampled_from([1, 5])
)
def test_records_see_the_newest_reading(
    start: dict[str, int], tables: list[dict[str, int]], partitions: int, every: int
) -> None:
    rows = dict(start)
    with TopologyTestDriver(topology(rows), partitions, every) as driver:
        orders, told = driver.create_input_topic("orders"), driver.create_output_topic("told")
        changes, before = len(start), start
        for table in [start, *tables]:
            rows.clear()
            rows.update(table)
            batches = driver.metrics()["batches"]
            driver.refresh("rates")
            differing = sum(before.get(key) != table.get(key) for key in before.keys() | table.keys())
            assert driver.metrics()["batches"] == batches + (differing > 0), "a reading is one batch"
            changes, before = changes + differing, table
            for code in "abcd":
                orders.pipe_input("k", code)
            driver.commit()
            assert [one.value for one in told.read_records()] == [str(table.get(code)) for code in "abcd"]
            stored = {key: value["rate"] for key, value in driver.get_key_value_store("rates").all()}
            assert stored == table
        assert driver.metrics()["rows_in"].get("rates", 0) == changes


def test_a_table_that_is_not_there_is_refused() -> None:
    with (
        TopologyTestDriver(topology({"a": 1})) as driver,
        pytest.raises(ConfigError, match=r"\[CS-241\] .* no table 'orders' to read again(?s:.)*are: rates"),
    ):
        driver.refresh("orders")


def test_a_reading_that_fails_changes_nothing() -> None:
    rows = {"a": 1}
    with TopologyTestDriver(topology(rows)) as driver:
        rows["b"] = "x"  # type: ignore[assignment]
        with pytest.raises(SourceError, match=r"\[CS-621\]"):
            driver.refresh("rates")
        assert dict(driver.get_key_value_store("rates").all()) == {"a": {"rate": 1}}
