"""The benchmark of the join of many: its data, and that all sides give the same results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.data import START_MS, Message
from benchmarks.generate import Topics
from benchmarks.join_many import next_updates
from benchmarks.join_many_app import INSTEAD, KEPT, TABLES, TAKEN, WAYS, joined
from benchmarks.join_many_engine import measure
from benchmarks.star_data import MOVES, Star, StarEnds, order_updates, orders_and_updates, rows_of

import crossstream as cs
from crossstream import serdes
from crossstream.partitioning import murmur2_partitions

STAR = Star(orders=400, customers=60, products=30, stores=7)
TEXT, JSON = serdes.string(), serdes.json()


def messages() -> dict[str, list[Message]]:
    """All right rows; orders, each about three times."""
    rights = {table: rows_of(table, range(STAR.rows(table)), 1) for table in TABLES.values()}
    orders = [m for chunk in order_updates(STAR, 1200, 1, START_MS, chunk=500) for m in chunk]
    return {**rights, "orders": orders}


def table(rows: list[Message]) -> dict[str, Any]:
    return {key.decode(): json.loads(value or b"") for key, value, _ in rows}


def expected(given: dict[str, list[Message]]) -> dict[str, Any]:
    tables = {name: table(rows) for name, rows in given.items()}
    return {
        key: {name: order[name] for name in KEPT}
        | {
            to: tables[TABLES[side]][order[f"{side}_id"]][name]
            for side, taken in TAKEN.items()
            for to, name in taken.items()
        }
        for key, order in tables["orders"].items()
    }


def results_of(how: str, given: dict[str, list[Message]]) -> dict[str, Any]:
    with cs.TopologyTestDriver(joined(Topics.of("x"), how), partitions=2, commit_every=300) as driver:
        for name, rows in given.items():
            driver.create_input_topic(f"x-{name}", serdes.bytes(), serdes.bytes()).pipe_records(rows)
        driver.commit()
        return driver.create_output_topic("x-results", TEXT, JSON).read_key_values_to_map()


def test_orders_come_once_and_then_again_and_some_move() -> None:
    orders = [(key, json.loads(value or b"")) for key, value, _ in messages()["orders"]]
    assert len(orders) == 1200
    assert len({key for key, _ in orders}) == STAR.orders
    last: dict[bytes, Any] = {}
    moves = dict.fromkeys(MOVES, 0)
    for key, order in orders:
        for side, name in TABLES.items():
            moves[name] += key in last and last[key][f"{side}_id"] != order[f"{side}_id"]
        last[key] = order
    shares = {name: moved / 800 for name, moved in moves.items()}
    assert all(0.3 * share < shares[name] < 1.6 * share for name, share in MOVES.items()), shares


def test_updates_of_orders_that_are_there_keep_most_foreign_keys() -> None:
    there, later = (
        [(key, json.loads(value or b""), at) for chunk in part for key, value, at in chunk]
        for part in orders_and_updates(STAR, 1200, 2, START_MS, START_MS + 10_000)
    )
    last = {key: order for key, order, _ in there}
    assert len(last) == len(there) == STAR.orders
    assert [at for *_, at in later] == list(range(START_MS + 10_000, START_MS + 11_200))
    kept = 0
    for key, order, _ in later:
        kept += all(last[key][f"{side}_id"] == order[f"{side}_id"] for side in TABLES)
        last[key] = order
    assert 0.75 < kept / len(later) < 0.95


def test_updates_are_given_in_turn() -> None:
    given = [(b"o%d" % number, b"", number) for number in range(50_000)]
    updates = iter(given)
    turns = [list(next_updates(updates, count)) for count in (1, 20_000, 25_000)]
    assert [len(chunk) for turn in turns for chunk in turn] == [1, 20_000, 20_000, 5_000]
    assert [message for turn in turns for chunk in turn for message in chunk] == given[:45_001]


def test_ends_take_every_way() -> None:
    ends = StarEnds.of(4)
    ways = {(*murmur2_partitions([key], 4), right) for key, right in ends.orders}
    assert ways == {(left, right) for left in range(4) for right in range(4)}
    assert all(murmur2_partitions(list(keys), 4) == [0, 1, 2, 3] for keys in ends.keys.values())
    row = json.loads(ends.order_messages(0)[1][1] or b"")
    assert row["customer_id"].encode() == ends.keys["customers"][1]


@pytest.mark.parametrize("how", sorted(WAYS))
def test_all_ways_give_the_join(how: str) -> None:
    given = messages()
    results = results_of(how, given)
    assert results == expected(given)


def test_orders_alone_give_results_as_long_as_those_of_the_join() -> None:
    given = messages()
    results = results_of("orders", {"orders": given["orders"]})
    joins = expected(given)
    assert results == {key: {name: row[name] for name in KEPT} | INSTEAD for key, row in joins.items()}
    assert list(next(iter(results.values()))) == list(next(iter(joins.values())))
    lengths = [sum(len(json.dumps(row)) for row in rows.values()) for rows in (results, joins)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.05)


def test_the_measure_of_the_engine() -> None:
    lines = list(measure(0.01))
    assert [line["figure"].rpartition(": ")[2] for line in lines][-3:] == [
        f"new {name}" for name in TABLES.values()
    ]
    assert all(line["join_many"] > 0 and line["times"] > 0 for line in lines)
