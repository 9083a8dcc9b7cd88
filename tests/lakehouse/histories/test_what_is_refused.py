"""Histories that do not fit their topics, and settings that do not fit each other: each is refused with its code."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.errors import SourceError, TopologyError
from tests.lakehouse.histories.topic_and_lake import Lake, Order, Record, rows_of, write_topic

NOON = 1_700_000_000_000
RECORDS = [Record(n % 2, "abc"[n % 3], ("x", n), NOON + n) for n in range(8)]


@dataclass
class Shop:
    """A topic of orders and its lake, in a folder."""

    root: Path
    lake: Lake

    def lose(self, begins: dict[int, int]) -> None:
        """The topic begins there."""
        shutil.rmtree(self.root / "topics", ignore_errors=True)
        write_topic(self.root / "topics", RECORDS, begins)

    def run(self, history: Any) -> dict[str, Order]:
        builder = cs.StreamsBuilder()
        builder.table("orders", value=Order, store="orders", history=history)
        config = cs.StreamsConfig(
            application_id="shop",
            state_dir=self.root / "state",
            topics_dir=self.root / "topics",
            engine="local",
        )
        with cs.SparkStreams(builder.build(), config) as app:
            app.process_available()
            return dict(app.store("orders").all())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """The lake has the first two records of each partition."""
    lake = Lake(tmp_path, "delta")
    lake.create()
    lake.append([row for row in rows_of(RECORDS) if row["offset"] < 2])
    made = Shop(tmp_path, lake)
    made.lose({0: 2, 1: 2})
    return made


def expected() -> dict[str, Order]:
    return {record.key: Order(*record.value) for record in RECORDS if record.value is not None}


def test_a_gap_names_the_last_row_and_the_first_record(shop: Shop) -> None:
    shop.lose({0: 2, 1: 3})
    with pytest.raises(
        SourceError, match="the history ends at offset 1, and the topic begins at offset 3"
    ) as caught:
        shop.run(shop.lake.history())
    assert caught.value.code == "CS-630"
    assert caught.value.where["partition"] == 1


def test_a_partition_that_the_lake_does_not_have_is_read_from_its_beginning(shop: Shop) -> None:
    shop.lake.create_again([row for row in rows_of(RECORDS) if row["partition"] == 0])
    shop.lose({0: 3})
    assert shop.run(shop.lake.history()) == expected()
    shutil.rmtree(shop.root / "state")
    shop.lose({0: 3, 1: 1})
    with pytest.raises(SourceError, match="has no rows of this partition, and the topic begins at offset 1"):
        shop.run(shop.lake.history())


def test_a_lake_of_another_topic(shop: Shop) -> None:
    row = rows_of(RECORDS)[0]
    shop.lake.append([row | {"partition": 5}])
    with pytest.raises(SourceError, match="rows of partition 5, and the topic has 2 partitions") as caught:
        shop.run(shop.lake.history())
    assert caught.value.code == "CS-631"
    shop.lake.create_again([row | {"offset": 70}])
    with pytest.raises(SourceError, match="offset 70, and the topic ends at offset 4"):
        shop.run(shop.lake.history())


def test_a_history_is_not_added_to_what_was_read_without_it(shop: Shop) -> None:
    shop.lose({})
    assert shop.run(None) == expected()
    with pytest.raises(SourceError, match="has read orders without the history") as caught:
        shop.run(shop.lake.history())
    assert caught.value.code == "CS-631"


def test_a_history_that_was_read_may_be_left_out(shop: Shop) -> None:
    assert shop.run(shop.lake.history()) == expected()
    shutil.rmtree(shop.root / "orders")
    assert shop.run(None) == expected()


def test_a_later_version_is_not_read(shop: Shop) -> None:
    assert shop.run(shop.lake.history()) == expected()
    shop.lake.append([rows_of([Record(0, "late", ("x", 1), NOON)])[0] | {"offset": 3}])
    assert shop.run(shop.lake.history()) == expected()


def test_the_version_that_is_named_is_read(shop: Shop) -> None:
    shop.lake.append([rows_of(RECORDS)[0] | {"partition": 5}])
    with pytest.raises(SourceError, match="rows of partition 5"):
        shop.run(shop.lake.history())
    assert shop.run(shop.lake.history(version=1)) == expected()


def test_a_table_that_was_made_again_before_it_was_read_whole(shop: Shop) -> None:
    config: dict[str, Any] = {"application_id": "shop", "topics_dir": shop.root / "topics", "engine": "local"}
    builder = cs.StreamsBuilder()
    table = builder.table("orders", value=Order, history=shop.lake.history())

    def stop(key: str, order: Order) -> Order:
        raise KeyError("stop")

    table.map_values(stop, named=cs.Named("stop")).to_stream().to("copies", value=Order)
    with (
        pytest.raises(cs.ProcessingError),
        cs.SparkStreams(builder.build(), cs.StreamsConfig(state_dir=shop.root / "state", **config)) as app,
    ):
        app.process_available()
    shop.lake.create_again([row for row in rows_of(RECORDS) if row["offset"] < 2])
    with pytest.raises(SourceError, match="was deleted and made again") as caught:
        shop.run(shop.lake.history())
    assert caught.value.code == "CS-603"


@pytest.mark.parametrize(("column", "value"), [("amount", None), ("customer", None)])
def test_a_row_that_is_no_record(shop: Shop, column: str, value: Any) -> None:
    row = next(row for row in rows_of(RECORDS) if (row["partition"], row["offset"]) == (0, 2))
    shop.lake.append([row | {column: value}])
    with pytest.raises(SourceError, match=f"is no record of the topic.*{column}") as caught:
        shop.run(shop.lake.history())
    assert caught.value.code == "CS-631"


def at(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, timezone.utc)


def test_a_topic_that_begins_after_the_time(shop: Shop) -> None:
    with pytest.raises(SourceError, match="records between are missing") as caught:
        shop.run(shop.lake.history(until=at(NOON + 2), deleted=None))
    assert caught.value.code == "CS-630"


def test_a_topic_without_records(shop: Shop) -> None:
    shop.lose({0: 4, 1: 4})
    with pytest.raises(SourceError, match="the topic has no record any more, and is read from"):
        shop.run(shop.lake.history(until=at(NOON + 2), deleted=None))


def test_a_table_that_was_written_before_the_time(shop: Shop) -> None:
    with pytest.raises(SourceError, match="the last commit of the table is of") as caught:
        shop.run(shop.lake.history(until=datetime(2100, 1, 1), deleted=None))
    assert caught.value.code == "CS-630"


def test_two_rows_of_a_key_are_no_table_of_current_rows(shop: Shop) -> None:
    shop.lose({})
    shop.lake.append(rows_of(RECORDS)[:1])
    with pytest.raises(SourceError, match="several rows with the same key") as caught:
        shop.run(shop.lake.history(until=at(NOON + 2), deleted=None))
    assert caught.value.code == "CS-614"


def test_settings_that_do_not_fit(shop: Shop) -> None:
    builder = cs.StreamsBuilder()
    time = shop.lake.history(until=at(NOON))
    with pytest.raises(TopologyError, match="a time does not say which records of a stream"):
        builder.stream("orders", value=Order, history=time)
    with pytest.raises(TopologyError, match="a history is of one topic"):
        builder.stream(["orders", "more"], value=Order, history=shop.lake.history())
    with pytest.raises(TopologyError, match="a history says where the topic begins"):
        builder.stream("orders", cs.Consumed(offset_reset="latest"), value=Order, history=shop.lake.history())
    with pytest.raises(TopologyError, match="the rows of a history are read before other records"):
        builder.table("orders", cs.Consumed(load="first"), value=Order, history=time)
    with pytest.raises(TopologyError, match="do not say of which transactions they are"):
        builder.table(
            "orders",
            source=cs.debezium(Order, key="customer", transactions="tx"),
            history=shop.lake.history(),
        )
    with pytest.raises(TopologyError, match="is no history"):
        builder.table("orders", value=Order, history="lake/orders")  # type: ignore[call-overload]
    for settings in (
        {},
        {"delta": "a", "iceberg": "b.c"},
        {"iceberg": "b.c"},
        {"delta": "a", "catalog": {}},
        {"delta": "a", "until": "noon"},
        {"delta": "a", "key": [""]},
        {"delta": "a", "value": 3},
        {"delta": "a", "version": -1},
    ):
        wanted: dict[str, Any] = {"until": cs.offsets()} | settings
        with pytest.raises(TopologyError, match="history") as caught:
            cs.history(**wanted)
        assert caught.value.code == "CS-101"
    with pytest.raises(TopologyError, match="'' is not the name of a column"):
        cs.offsets("")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"until": cs.offsets("part")}, "partition: there is no column 'part'"),
        (
            {"until": cs.offsets("customer")},
            "the column customer is of type .*string, which is no whole number",
        ),
        ({"timestamp": None}, "timestamp: there is no column 'timestamp'"),
        ({"timestamp": "customer"}, "which is no time"),
        ({"deleted": "amount"}, "neither true nor false"),
        ({"key": "id"}, "there is no column 'id'"),
        ({"value": "nothing"}, "there is no column 'nothing'"),
    ],
)
def test_columns_that_are_not_there(shop: Shop, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(TopologyError, match=match) as caught:
        cs.StreamsBuilder().table("orders", value=Order, history=shop.lake.history(**settings))
    assert caught.value.code == "CS-150"


def test_a_field_that_the_lake_does_not_have(shop: Shop) -> None:
    @dataclass
    class More:
        customer: str
        note: str | None = None

    with pytest.raises(TopologyError, match="there is no column 'note'"):
        cs.StreamsBuilder().table("orders", value=More, history=shop.lake.history())


def test_no_column_of_keys(shop: Shop) -> None:
    lake = Lake(shop.root / "other", "delta")
    lake.create(pa.schema([field for field in lake.schema if field.name != "key"]))
    with pytest.raises(TopologyError, match="which column has the keys"):
        cs.StreamsBuilder().table("orders", value=Order, history=lake.history(key=None))


def test_no_table() -> None:
    with pytest.raises(SourceError) as caught:
        cs.StreamsBuilder().table("orders", history=cs.history(delta="nowhere", until=cs.offsets()))
    assert caught.value.code == "CS-602"
