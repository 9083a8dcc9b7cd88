"""Joins with global tables through the driver: functions, keys, failures, stores."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import CrossStreamError

TEXT, JSON = serdes.string(), serdes.json()
CONSUMED = cs.Consumed(key=TEXT, value=JSON)
JOIN = "orders.left_join(shops)"


def told(order: Any, shop: Any) -> Any:
    return [order["item"], shop and shop["city"]]


def key_of(order: Any) -> Any:
    return order and order["shop"]


ORDER = serdes.json({"item": pl.String, "shop": pl.String})
SHOP = serdes.json({"city": pl.String})


def run(
    joiner: Any = told,
    key_selector: Any = key_of,
    kind: str = "left",
    values: tuple[Any, Any] = (JSON, JSON),
    **settings: Any,
) -> Any:
    """A driver of orders that look their shops up; results go to "told"."""
    builder = cs.StreamsBuilder()
    order, shop = (cs.Consumed(key=TEXT, value=value) for value in values)
    orders = builder.stream("orders", order)
    shops = builder.global_table("shops", shop, cs.Materialized(store="shops"))
    join = orders.join if kind == "inner" else orders.left_join
    join(shops, joiner, key_selector=key_selector).to("told", cs.Produced(key=TEXT, value=JSON))
    return cs.TopologyTestDriver(builder.build(), **settings)


def pipe(driver: Any, topic: str, *records: Any) -> None:
    driver.create_input_topic(topic, TEXT, JSON).pipe_records(records)


def read(driver: Any, topic: str = "told") -> list[tuple[Any, Any]]:
    return driver.create_output_topic(topic, TEXT, JSON).read_key_values()


def test_the_result_has_the_key_time_and_headers_of_the_record() -> None:
    with run() as driver:
        driver.create_input_topic("shops", TEXT, JSON).pipe_input("s", {"city": "C"}, 99, [("of", b"shop")])
        driver.create_input_topic("orders", TEXT, JSON).pipe_input(
            "o", {"item": 1, "shop": "s"}, 5, [("of", b"order")]
        )
        result = driver.create_output_topic("told", TEXT, JSON).read_record()
        assert result == cs.TestRecord("o", [1, "C"], 5, (("of", b"order"),))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("commit_every", [1, 100])
def test_functions_with_the_key_of_the_stream(partitions: int, commit_every: int) -> None:
    joiner = cs.keyed(lambda key, order, shop: [key, order["item"], shop and shop["city"]])
    with run(joiner, lambda key, order: key[:1], partitions=partitions, commit_every=commit_every) as driver:
        pipe(driver, "shops", ("a", {"city": "A"}, 0), ("b", {"city": "B"}, 0))
        pipe(driver, "orders", *((f"{letter}1", {"item": letter}, 1) for letter in "abc"))
        driver.commit()
        assert sorted(read(driver)) == [
            ("a1", ["a1", "a", "A"]),
            ("b1", ["b1", "b", "B"]),
            ("c1", ["c1", "c", None]),
        ]


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_a_joiner_with_four_arguments_gets_both_keys(kind: str) -> None:
    orders = [
        ("o1", {"item": "x", "shop": "s"}, 1),
        ("o2", {"item": "y", "shop": None}, 1),
        ("o3", {"shop": "u"}, 2),
    ]

    def joiner(key: str, other_key: str | None, order: Any, shop: Any) -> list[Any]:
        return [key, other_key, order.get("item"), shop and shop["city"]]

    for given in (joiner, cs.keyed(joiner)):
        with run(given, kind=kind, partitions=2, commit_every=9) as driver:
            pipe(driver, "shops", ("s", {"city": "C"}, 0))
            pipe(driver, "orders", *orders)
            driver.commit()
            alone = [("o2", ["o2", None, "y", None]), ("o3", ["o3", "u", None, None])]
            assert sorted(read(driver)) == [("o1", ["o1", "s", "x", "C"]), *(alone if kind == "left" else [])]


@pytest.mark.parametrize("kind", ["inner", "left"])
def test_expressions_and_callables_in_one_join(kind: str) -> None:
    joiner = pl.concat_str(pl.col("left").struct.field("item"), pl.col("right").struct.field("city"))
    inputs = [("o1", {"item": "x", "shop": "s"}, 1), ("o2", {"item": "y", "shop": None}, 1), ("o3", None, 1)]
    shop = pl.when(pl.col("value").is_not_null()).then(pl.col("shop"))
    found = []
    for functions in [
        (joiner, shop),
        (joiner, key_of),
        (lambda o, s: s and o["item"] + s["city"], shop),
    ]:
        with run(*functions, kind=kind, values=(ORDER, SHOP)) as driver:
            pipe(driver, "shops", ("s", {"city": "C"}, 0))
            pipe(driver, "orders", *inputs)
            found.append((read(driver), driver.metrics()["dropped-records-total"]))
    nothing = [] if kind == "inner" else [("o2", None)]
    assert found == [([("o1", "xC"), *nothing], 2 - len(nothing))] * 3


def test_a_joiner_that_gives_nothing_gives_a_null_record() -> None:
    with run(lambda order, shop: None) as driver:
        pipe(driver, "orders", ("o", {"item": 1, "shop": "s"}, 1))
        assert read(driver) == [("o", None)]


def test_the_store_can_be_asked() -> None:
    with run(partitions=3) as driver:
        pipe(driver, "shops", *((f"s{n}", {"city": n}, 0) for n in range(9)), ("s3", None, 1), (None, {}, 1))
        store = driver.get_key_value_store("shops")
        assert [key for key, _ in store.all()] == [f"s{n}" for n in range(9) if n != 3]
        assert driver.metrics()["dropped"] == {"shops: null-key": 1}


def test_a_topology_may_write_its_own_global_table() -> None:
    """What a sink writes to the table's topic comes in with the next batch."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", CONSUMED)
    seen = builder.global_table("seen", CONSUMED)
    produced = cs.Produced(key=TEXT, value=JSON)
    before = orders.left_join(seen, lambda order, last: [last, order], key_selector=lambda key, order: key)
    before.to("told", produced)
    orders.to("seen", produced)
    with cs.TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "orders", ("o", 1, 0), ("o", 2, 1), ("o", 3, 2))
        assert read(driver) == [("o", [None, 1]), ("o", [1, 2]), ("o", [2, 3])]


# Failures


def shop_or_raise(order: Any) -> Any:
    return {"bad": 1, "ok": "s"}[order["shop"]]


@pytest.mark.parametrize(
    ("shop", "kind", "code"), [("none", cs.ProcessingError, "CS-501"), ("bad", cs.SerdeError, "CS-401")]
)
@pytest.mark.parametrize("size", [1, 9])
def test_a_key_that_cannot_be_had(size: int, shop: str, kind: type[CrossStreamError], code: str) -> None:
    driver = run(key_selector=shop_or_raise, partitions=2, commit_every=size)
    pipe(driver, "shops", ("s", {"city": "C"}, 0))
    orders = driver.create_input_topic("orders", TEXT, JSON)
    orders.pipe_input("fine", {"item": 1, "shop": "ok"}, 1, partition=1)

    def process() -> None:
        orders.pipe_input("o", {"item": 2, "shop": shop}, 2, partition=1)
        driver.commit()

    with pytest.raises(kind) as caught:
        process()
    where = caught.value.where
    assert (caught.value.code, where["operator"], where["topic"], where["partition"], where["offset"]) == (
        code, JOIN, "orders", 1, 1,
    )  # fmt: skip


def test_records_that_fail_can_be_let_go_or_buried() -> None:
    def joiner(order: Any, shop: Any) -> Any:
        return [order["item"], 1 // shop["open"]]

    shops = [("s", {"open": 0}, 0), ("t", {"open": 1}, 0)]
    orders = [(f"o{n}", {"item": n, "shop": shop}, n) for n, shop in enumerate(["s", "t", 7, "s", "t"])]
    for policy in ("skip", cs.DeadLetter("bad")):
        with run(joiner, commit_every=100, processing_errors=policy) as driver:
            pipe(driver, "shops", *shops)
            pipe(driver, "orders", *orders)
            driver.commit()
            assert read(driver) == [("o1", [1, 1]), ("o4", [4, 1])]
            assert driver.metrics()["dropped"] == {f"{JOIN}: failed": 3}
            if policy != "skip":
                letters = driver.create_output_topic("bad", TEXT, JSON).read_records()
                assert sorted((one.key, one.value) for one in letters) == [
                    (key, value) for key, value, _ in (orders[0], orders[2], orders[3])
                ]
                assert all(dict(one.headers)["crossstream.operator"] == JOIN.encode() for one in letters)


def test_rows_that_cannot_be_read_are_left_out_of_the_table() -> None:
    with run(deserialization_errors="skip") as driver:
        raw = driver.create_input_topic("shops", TEXT, serdes.bytes())
        raw.pipe_input("s", b'{"city": "C"}')
        raw.pipe_input("s", b"{")
        pipe(driver, "orders", ("o", {"item": 1, "shop": "s"}, 1))
        assert read(driver) == [("o", [1, "C"])]
        assert driver.metrics()["dropped"] == {"shops: undecodable": 1}


def test_a_batch_that_failed_leaves_the_table_as_it_was() -> None:
    """Its rounds come first, but belong to the batch like all others."""
    driver = run(lambda order, shop: 1 // order["item"], commit_every=100)
    pipe(driver, "shops", ("s", {"city": "Before"}, 0))
    driver.commit()
    pipe(driver, "shops", ("s", {"city": "After"}, 1))
    pipe(driver, "orders", ("o", {"item": 0, "shop": "s"}, 2))
    for _ in range(2):
        with pytest.raises(cs.ProcessingError):
            driver.commit()
        assert driver.get_key_value_store("shops").get("s") == {"city": "Before"}


# Left rows that a function made

BYTES = serdes.bytes()


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize(
    ("value", "mapper", "copy"), [(None, lambda row: [row], JSON), (BYTES, lambda row: row.encode(), BYTES)]
)
@pytest.mark.parametrize("versions", [None, "1 hour"])
def test_rows_that_a_function_made_are_kept_in_their_serde(
    versions: Any, value: Any, mapper: Any, copy: Any, copied: bool
) -> None:
    """A change of the other row finds them as they were made, also if a sink wrote them in a serde of its own."""
    builder = cs.StreamsBuilder()
    table = builder.table(
        "table", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(history_retention=versions)
    )
    shops = builder.global_table("shops", cs.Consumed(key=TEXT, value=TEXT))
    made = table.map_values(mapper, materialized=cs.Materialized(value=value))
    if copied:
        made.to_stream().to("copies", cs.Produced(value=copy))
    joined = made.left_join(shops, lambda row, shop: [repr(row), shop], foreign_key=lambda row: "s")
    joined.to_stream().to("told", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("k", "x", 1)
        driver.create_input_topic("shops", TEXT, TEXT).pipe_input("s", "C", 2)
        shown = repr(mapper("x"))
        assert read(driver) == [("k", [shown, None]), ("k", [shown, "C"])]


@pytest.mark.parametrize("copied", [False, True])
def test_what_a_joiner_gets_does_not_depend_on_who_came_first(copied: bool) -> None:
    """Kept as JSON, a pair is a list for the first result as for all others; and a topic of it changes nothing."""
    builder = cs.StreamsBuilder()
    table = builder.table("table", cs.Consumed(key=TEXT, value=TEXT))
    shops = builder.global_table("shops", cs.Consumed(key=TEXT, value=TEXT))
    made = table.map_values(lambda row: (row, "s"), materialized=cs.Materialized(value=JSON))
    if copied:
        made.to_stream().to("copies", cs.Produced(value=JSON))
    joined = made.left_join(shops, lambda row, shop: [repr(row), shop], foreign_key=lambda row: row[1])
    joined.to_stream().to("told", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("k", "x", 1)
        driver.create_input_topic("shops", TEXT, TEXT).pipe_input("s", "C", 2)
        assert read(driver) == [("k", ["['x', 's']", None]), ("k", ["['x', 's']", "C"])]


def test_a_row_that_cannot_be_kept_is_named() -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("table", cs.Consumed(key=TEXT, value=TEXT))
    shops = builder.global_table("shops", cs.Consumed(key=TEXT, value=TEXT))
    made = table.map_values(lambda row: row.encode(), materialized=cs.Materialized(value=TEXT))
    made.left_join(shops, told, foreign_key=lambda row: "s", named=cs.Named("told")).to_stream().foreach(
        print
    )
    with cs.TopologyTestDriver(builder.build()) as driver, pytest.raises(CrossStreamError) as caught:
        driver.create_input_topic("table", TEXT, TEXT).pipe_input("k", "x", 1)
    where = caught.value.where
    assert (where["operator"], where["topic"], where["offset"]) == ("told", "table", 0)
