"""Applications that are started again with another number of state partitions."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.loop import Loop
from crossstream.cli import main
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine
from tests.docs.state_reader import StateFolder, hash_of
from tests.spark.marketplace import (
    JSON,
    TEXT,
    Change,
    joined,
    marketplace,
    merchants,
    products,
    random_changes,
)
from tests.spark.orders import shop_of, told
from tests.spark.world import World


def by_length(key: str, partitions: int) -> int:
    """Few different answers: some partitions stay empty."""
    return (len(key) + ord(key[-1])) % partitions


TOPOLOGIES = {
    "placed by hash": marketplace(),
    "placed by partitioners": marketplace(
        table_joined=cs.TableJoined(partitioner=by_length, other_partitioner=by_length),
    ),
}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_restarts_with_other_numbers(engine: Engine, world: World, topology: str) -> None:
    """The table, the result topic and every batch that is kept are those of the input, whatever the partitions."""
    rng = Random(len(topology))
    world.create(products=3, merchants=2, offers=2)
    given: dict[str, list[Change]] = {"products": [], "merchants": []}
    after: dict[int, tuple[int | None, dict[str, Any]]] = {}
    for partitions in (2, 5, None, 1, 3):
        with engine.streams(TOPOLOGIES[topology], world.config(partitions=partitions)) as app:
            for _ in range(2):
                for topic, changes in random_changes(rng, 500, 200, 20).items():
                    given[topic] += changes
                    world.append(topic, changes, TEXT, JSON)
                app.process_available()
                wanted = joined(given["products"], given["merchants"])
                after[app.progress.batch] = (partitions, wanted)
                assert dict(app.store("offers").all()) == wanted
                assert world.table("offers", TEXT, JSON) == wanted
            assert set(app.progress.state_rows) == set(BatchLog(world.state_dir).newest().versions)
    folder = StateFolder(world.state_dir)
    for batch in folder.batches():
        partitions, wanted = after.get(batch, (None, {}))
        if batch in after:
            assert dict(cs.open_store(world.state_dir, "offers", as_of=batch).all()) == wanted
            assert partitions in (None, folder.partitions(batch))
        for place, row in folder.rows("offers", batch):
            assert place == (hash_of(row["key"]) >> 32) * folder.partitions(batch) >> 32
    found = verify_state(world.state_dir)
    assert (found.problems, found.leftovers) == ([], [])


def placed_in(partition: int) -> cs.Topology:
    """Every row is in that partition, whether it is told by its own key or by the foreign one."""

    def place(key: str, partitions: int) -> int:
        return partition

    table_joined = cs.TableJoined(partitioner=place, other_partitioner=place, name="J")
    return marketplace(table_joined=table_joined)


def test_rows_follow_another_partitioner(engine: Engine, world: World) -> None:
    """With the number of partitions that was there; where it is the same partitioner nothing moves."""
    rng = Random(5)
    world.create(products=2, merchants=1, offers=2)
    given: dict[str, list[Change]] = {"products": [], "merchants": []}
    log = BatchLog(world.state_dir)
    for partition, commits in ((0, 1), (1, 3), (1, 4), (0, 6)):
        for topic, changes in random_changes(rng, 400, 60, 8).items():
            given[topic] += changes
            world.append(topic, changes, TEXT, JSON)
        with engine.streams(placed_in(partition), world.config(partitions=2)) as app:
            app.process_available()
            wanted = joined(given["products"], given["merchants"])
            assert dict(app.store("offers").all()) == wanted
        assert world.table("offers", TEXT, JSON) == wanted
        assert log.newest().id + 1 == commits
        assert verify_state(world.state_dir).problems == []
    folder = StateFolder(world.state_dir)
    assert {place for place, _ in folder.rows("J.subscriptions", folder.batches()[-1])} == {0}
    assert dict(cs.open_store(world.state_dir, "offers", as_of=4).all()) == dict(
        cs.open_store(world.state_dir, "offers", as_of=3).all()
    )


def test_a_batch_that_was_begun_is_not_repeated_with_another_partitioner(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(40, 5), TEXT, JSON)
    with engine.streams(placed_in(0), world.config(partitions=2)) as app:
        app.process_available()
    world.append("products", products(10, 5, first=100), TEXT, JSON)

    class Crash(BaseException):
        pass

    def crash(*_: Any) -> None:
        raise Crash

    app = engine.streams(placed_in(0), world.config(partitions=2))
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_commit", crash)
        with pytest.raises(Crash):
            app.process_available()
    app.stop()
    with pytest.raises(cs.IncompatibleStateError) as caught:
        engine.streams(placed_in(1), world.config(partitions=2)).process_available()
    assert caught.value.code == "CS-750"
    assert "J.subscriptions" in caught.value.what
    for partition in (0, 1):
        with engine.streams(placed_in(partition), world.config(partitions=2)) as app:
            app.process_available()
    assert len(world.read("offers", TEXT, JSON)) == 50
    wanted = joined(products(40, 5) + products(10, 5, first=100), merchants(5))
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted


def test_a_batch_that_was_begun_is_finished_with_the_partitions_it_had(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has published its results already; repeated with other partitions, it would publish some twice."""
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(40, 5), TEXT, JSON)

    class Crash(BaseException):
        pass

    def crash(*_: Any) -> None:
        raise Crash

    app = engine.streams(marketplace(), world.config(partitions=3))
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_commit", crash)
        with pytest.raises(Crash):
            app.process_available()
    app.stop()
    assert len(world.read("offers", TEXT, JSON)) == 40
    assert main(["state", "rescale", str(world.state_dir), "--partitions", "2"]) == 1
    late = products(10, 5, first=100)
    world.append("products", late, TEXT, JSON)
    with engine.streams(marketplace(), world.config(partitions=2)) as app:
        app.process_available()
    log = BatchLog(world.state_dir)
    assert [log.commit(number).partitions for number in log.commits()] == [3, 2, 2]
    assert len(world.read("offers", TEXT, JSON)) == 50, "each result once"
    wanted = joined(products(40, 5) + late, merchants(5))
    assert world.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted


def test_by_the_command_line_between_two_runs(engine: Engine, world: World) -> None:
    """Without `partitions` in its settings the application goes on with what the command made."""
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(40, 5), TEXT, JSON)
    for number in (4, 1):
        with engine.streams(marketplace(), world.config()) as app:
            app.process_available()
            store = app.store("offers")
        assert main(["state", "rescale", str(world.state_dir), "--partitions", str(number)]) == 0
        assert dict(store.all()) == joined(products(40, 5), merchants(5))
    world.append("merchants", merchants(5, shop="new"), TEXT, JSON)
    with engine.streams(marketplace(), world.config()) as app:
        app.process_available()
    assert BatchLog(world.state_dir).newest().partitions == 1
    assert dict(cs.open_store(world.state_dir, "offers").all()) == joined(
        products(40, 5), merchants(5, shop="new")
    )


def by_shop(kind: str, made: str) -> cs.Topology:
    """orders ⋈ shops (global) → store "sold"; → topic "told", each with the note of its key."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=JSON)
    kept = cs.Materialized(store="orders", history_retention="1 day" if made == "versioned" else None)
    if made == "placed by a partitioner":
        moved = builder.stream("orders", consumed).repartition(cs.Repartitioned(partitioner=by_length))
        table = moved.to_table(materialized=kept)
    else:
        table = builder.table("orders", consumed, kept)
    shops = builder.global_table("shops", consumed)
    join = table.join if kind == "inner" else table.left_join
    sold = join(shops, told, foreign_key=shop_of, materialized=cs.Materialized(store="sold", value=JSON))
    sold = sold.left_join(builder.table("notes", consumed), lambda row, note: {**row, "note": note})
    sold.to_stream().to("told", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("inner", "plain"),
        ("left", "versioned"),
        ("left", "placed by a partitioner"),
        pytest.param("left", "plain", marks=pytest.mark.nightly),
        pytest.param("inner", "versioned", marks=pytest.mark.nightly),
        pytest.param("inner", "placed by a partitioner", marks=pytest.mark.nightly),
    ],
)
def test_tables_joined_with_a_global_table(engine: Engine, world: World, kind: str, made: str) -> None:
    """Left rows answer to changes of either table where they are now, and only there; the command moves them, too."""
    topology = by_shop(kind, made)
    world.create(orders=2, shops=1, notes=1, told=1)
    held: dict[str, dict[str, Any]] = {"orders": {}, "shops": {}, "notes": {}}

    def change(topic: str, rows: Mapping[str, Any], ts: int) -> None:
        world.append(topic, [(key, value, ts) for key, value in rows.items()], TEXT, JSON)
        held[topic] = {k: v for k, v in {**held[topic], **rows}.items() if v is not None}

    for turn, partitions in enumerate((3, 2, 5, None, 1, 4)):
        with engine.streams(topology, world.config(partitions=partitions)) as app:
            moved = {f"k{n}": {"item": turn, "shop": f"s{(n + turn) % 4}"} for n in range(turn, 24, 2)}
            gone = dict.fromkeys([f"k{turn + 7}"])
            for topic, rows in [
                ("shops", {f"s{n}": {"city": f"{turn}.{n}"} for n in range(3)}),
                ("orders", {**moved, **gone}),
                ("notes", {f"k{n}": turn for n in range(0, 24, 5)}),
                ("shops", {"s1": {"city": f"new {turn}"}, "s2": None}),
            ]:
                change(topic, rows, 10 * turn)
                app.process_available()
                found = {
                    key: told(row, held["shops"].get(row["shop"])) for key, row in held["orders"].items()
                }
                rows_of_sold = {key: row for key, row in found.items() if kind == "left" or row["city"]}
                assert dict(app.store("sold").all()) == rows_of_sold
        assert world.table("told", TEXT, JSON) == {
            key: {**row, "note": held["notes"].get(key)} for key, row in rows_of_sold.items()
        }
        if partitions is None:
            assert main(["state", "rescale", str(world.state_dir), "--partitions", "2"]) == 0
        assert verify_state(world.state_dir).problems == []
    folder = StateFolder(world.state_dir)
    (name,) = folder.application["by_key2"]
    newest = folder.batches()[-1]
    for place, row in folder.rows(name, newest):
        assert place == (hash_of(row["key2"]) >> 32) * folder.partitions(newest) >> 32


def test_stream_time_goes_with_the_keys(engine: Engine, world: World) -> None:
    """A record that was too old for its versioned table is so in more partitions, and in fewer."""
    builder = cs.StreamsBuilder()
    builder.table(
        "prices",
        cs.Consumed(key=TEXT, value=serdes.int64()),
        cs.Materialized(store="prices", history_retention=100),
    )
    topology = builder.build()
    world.create(prices=1)
    keys = [f"k{number}" for number in range(50)]
    world.append("prices", [(key, 1, 1000) for key in keys], TEXT, serdes.int64())
    dropped = 0
    for partitions in (2, 7, 3):
        world.append("prices", [(key, 2, 500) for key in keys], TEXT, serdes.int64())
        with engine.streams(topology, world.config(partitions=partitions)) as app:
            app.process_available()
            dropped += app.progress.dropped.get("prices: expired-version", 0)
    assert dropped == 3 * len(keys)
    assert dict(cs.open_store(world.state_dir, "prices").all()) == dict.fromkeys(keys, 1)
