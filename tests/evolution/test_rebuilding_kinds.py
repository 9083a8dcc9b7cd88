"""Each kind of change: what is rebuilt is what a first run of the new code has, and no record of the user's is made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.columns.flat import Format
from crossstream.evolution.decide import decide
from crossstream.evolution.decision import Result
from crossstream.evolution.rebuild import rebuild
from crossstream.graph.nodes import TableSink
from crossstream.spark.streams import rounds_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of
from tests.application.engines import Engine, engine, on_spark_too
from tests.evolution.kinds import KINDS
from tests.evolution.rebuilding import check_as_fresh, decided, rebuilt, rebuilt_at, rows_of
from tests.evolution.shop import ORDER, Shop, bill, joined, left_by, other_bill, windowed
from tests.faults.one_process import process
from tests.lakehouse.lake import FORMATS, Lake
from tests.object_store import ObjectStore, cache, object_server, object_store
from tests.spark.world import record_batch

__all__ = ["cache", "engine", "object_server", "object_store"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_change(kind: str, tmp_path: Path) -> None:
    before, after = KINDS[kind]
    world = left_by(before(), root=tmp_path).world
    sent = {topic: world.wire(topic) for topic in world.topics.log().topics()}
    built = check_as_fresh(world, after())
    assert {topic: world.wire(topic) for topic in world.topics.log().topics()} == sent
    assert not built.commit.tables


def test_records_that_are_gone_are_named(tmp_path: Path) -> None:
    world = left_by(windowed("1 minute"), root=tmp_path).world
    writer = replace(world.topics, segment_bytes=1).writer()
    order = serdes.json().serialize({"customer": "c1", "shop": "s1", "amount": 1})
    for number in range(2):
        writer.write("orders", record_batch([(b"late", order, 100 + number)]), [1])
        writer.flush()
    writer.close()
    process(windowed("1 minute"), world.config())
    first, *_ = sorted((world.topics_dir / "orders" / "1").glob("*.seg"))
    begin = int(sorted((world.topics_dir / "orders" / "1").glob("*.seg"))[1].stem)
    first.unlink()
    new = windowed("2 minutes")
    with pytest.raises(cs.StateError, match="CS-754") as caught:
        rebuilt(world, new, decided(world, new))
    assert f"offsets 0 to {begin - 1} are gone" in caught.value.what
    assert (caught.value.where["topic"], caught.value.where["partition"]) == ("orders", 1)


def test_a_topic_that_was_made_again_is_named(tmp_path: Path) -> None:
    world = left_by(windowed("1 minute"), root=tmp_path).world
    log = world.topics.log()
    log.delete_topic("orders")
    log.create_topic("orders", 2)
    with pytest.raises(cs.StateError, match="made again"):
        rebuilt(world, windowed("2 minutes"))


def test_records_since_the_last_batch_are_left_for_the_next_one(tmp_path: Path) -> None:
    world = left_by(windowed("1 minute"), root=tmp_path).world
    ends = [len(records) for records in world.wire("orders")]
    world.append("orders", [("new", {"customer": "c1", "shop": "s1", "amount": 1}, 50)], value=serdes.json())
    built = rebuilt(world, windowed("2 minutes"))
    assert built.positions == {"orders": {"orders": dict(enumerate(ends))}}


def test_nothing_is_rebuilt_of_what_is_the_same(tmp_path: Path) -> None:
    world = left_by(joined(), root=tmp_path).world
    built = rebuilt(world, joined())
    assert (built.versions, built.results) == ({}, ())


def test_what_an_earlier_attempt_left_is_removed(tmp_path: Path) -> None:
    world = left_by(joined(), root=tmp_path).world
    new = joined(joiner=other_bill)
    left = world.state_dir / "evolving" / "stores" / "x"
    left.mkdir(parents=True)
    rebuilt(world, new)
    assert not left.exists()
    rebuilt(world, new)


def test_state_on_an_object_store(object_store: ObjectStore, tmp_path: Path) -> None:
    world = left_by(joined(), root=tmp_path / "made").world
    place = object_store.uri(f"{tmp_path.name}/state")
    process(joined(), world.config(state_dir=place))
    new = joined(joiner=other_bill)
    built = rebuilt_at(root_of(place), world.config(state_dir=place), new)
    assert built.root.is_remote
    (result,) = built.results
    assert rows_of(result.after)
    assert object_store.names(f"{tmp_path.name}/state/evolving")


@on_spark_too
def test_workers_read_stored_rows(engine: Engine, tmp_path: Path) -> None:
    world = left_by(joined(), root=tmp_path).world
    new = joined(joiner=other_bill)
    config = world.config(engine=engine.name)
    with_session = partial(rounds_of, spark=engine.session)
    root, plan = root_of(world.state_dir), plan_topology(new)
    decision = decide(BatchLog(root), new, plan, config)
    (result,) = rebuild(decision, new, plan, config, root, with_session).results
    found = {key: value["amount"] for key, (value, _) in rows_of(result.after).items()}
    assert found == {f"o{n}": 2 * n for n in range(20)}


def into_a_table(lake: Lake, joiner: pl.Expr, **settings: Any) -> cs.Topology:
    shop = Shop.open()
    bills = shop.orders.join(shop.customers, joiner, foreign_key="customer", value=serdes.json(BILL))
    lake.sink(bills, "bills", key="order", **settings)
    return shop.builder.build()


LEFT, RIGHT = pl.col("left").struct, pl.col("right").struct
BILL = {"who": pl.String, "amount": pl.Int64}


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_tables_are_read_back(form: Format, tmp_path: Path) -> None:
    lake = Lake(tmp_path, form)
    old = into_a_table(lake, pl.struct(who=RIGHT.field("name"), amount=LEFT.field("amount")))
    new = into_a_table(lake, pl.struct(who=RIGHT.field("name"), amount=LEFT.field("amount") * 2))
    world = left_by(old, root=tmp_path / "world").world
    there = lake.rows("bills")
    (result,) = rebuilt(world, new).results
    before, after = rows_of(result.before), rows_of(result.after)  # type: ignore[arg-type]
    assert {key: {"order": key, **value} for key, (value, _) in before.items()} == {
        row["order"]: row for row in there.to_dicts()
    }
    assert {key: value["amount"] for key, (value, _) in after.items()} == {
        key: 2 * value["amount"] for key, (value, _) in before.items()
    }
    assert_frame_equal(lake.rows("bills"), there)


def test_results_that_a_function_sends_cannot_be_read_back(tmp_path: Path) -> None:
    def sent(joiner: Any) -> cs.Topology:
        shop = Shop.open()
        bills = shop.orders.join(shop.customers, joiner, foreign_key="customer")
        bills.to_stream().to(lambda key, bill: "bills", cs.Produced(value=serdes.json()))
        return shop.builder.build()

    world = left_by(sent(bill), root=tmp_path).world
    new = sent(other_bill)
    decision = decided(world, new)
    sinks = [node.name for node in new if node.public_name == "to"]
    with pytest.raises(cs.StateError, match="CS-755"):
        rebuilt(world, new, replace(decision, results=(Result(sinks[0], "sink"),)))


def test_records_in_postgres_are_not_read_back(tmp_path: Path) -> None:
    """Of changes that are appended no row is the result of now."""
    shop = Shop.open()
    bills = shop.orders.map_values(lambda order: order, value=serdes.json(ORDER))
    bills.to_stream().to_postgres("host=nowhere", "bills", key="id")
    new = shop.builder.build()
    world = left_by(joined(), root=tmp_path).world
    (sink,) = new.each(TableSink)
    with pytest.raises(cs.StateError, match="its rows have no keys") as caught:
        rebuilt(world, new, replace(decided(world, new), results=(Result(sink.name, "sink"),)))
    assert caught.value.code == "CS-755"


def test_rows_in_postgres_go_through_a_folder(object_store: ObjectStore, tmp_path: Path) -> None:
    shop = Shop.open()
    bills = shop.orders.map_values(lambda order: order, value=serdes.json(ORDER))
    bills.to_postgres("host=nowhere", "bills", key="id")
    new = shop.builder.build()
    world = left_by(joined(), root=tmp_path / "made").world
    place = object_store.uri(f"{tmp_path.name}/state")
    process(joined(), world.config(state_dir=place))
    (sink,) = new.each(TableSink)
    decision = replace(decided(world, new), results=(Result(sink.name, "sink"),))
    with pytest.raises(cs.StateError, match="the state is on an object store") as caught:
        rebuilt_at(root_of(place), world.config(state_dir=place), new, decision)
    assert caught.value.code == "CS-755"


def test_a_table_without_the_columns_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    lake.create("bills", pa.schema([("order", pa.string()), ("who", pa.string())]))
    new = into_a_table(lake, pl.struct(who=RIGHT.field("name"), amount=LEFT.field("amount")))
    world = left_by(joined(), root=tmp_path / "world").world
    (sink,) = new.each(TableSink)
    with pytest.raises(cs.StateError, match="no column 'amount'"):
        rebuilt(world, new, replace(decided(world, new), results=(Result(sink.name, "sink"),)))
