"""Views over global tables: how they are made, shown, and what happens where a function of one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT = serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=serdes.json())


def joiner(left: Any, right: Any) -> Any:
    return [left, right]


def key_of(value: Any) -> Any:
    return value["city"]


@pytest.fixture
def builder() -> cs.StreamsBuilder:
    return cs.StreamsBuilder()


@pytest.fixture
def shops(builder: cs.StreamsBuilder) -> cs.GlobalKTable:
    return builder.global_table("shops", JSON)


@pytest.fixture
def cities(builder: cs.StreamsBuilder) -> cs.GlobalKTable:
    return builder.global_table("cities", JSON)


def test_a_view(shops: Any, cities: Any) -> None:
    view = shops.left_join(cities, joiner, key_selector=key_of)
    node = node_of(view)
    assert (type(node), node.name, node.kind, node.parents, node.shape) == (
        graph.GlobalJoin, "shops.left_join(cities)", "left", ("shops", "cities"), "global",
    )  # fmt: skip
    assert serde_names(view) == ("string", None)
    assert view.queryable_store_name is None
    named = shops.join(cities, joiner, key_selector="city", named=cs.Named("both"))
    assert repr(named) == "<GlobalKTable both>"
    with_key = shops.join(cities, lambda key, left, right: key, key_selector=lambda key, value: key)
    assert node_of(with_key).joiner.with_key
    assert node_of(with_key).key_selector.with_key


def test_wrong_views(builder: Any, shops: Any, cities: Any) -> None:
    refused("CS-104", lambda: shops.join(cities, joiner), "key_selector of join is missing")
    refused("CS-104", lambda: shops.join(cities, 1, key_selector=key_of), "joiner of join is 1")
    refused("CS-104", lambda: shops.join(cities, joiner, key_selector=1), "not a function")
    refused("CS-136", lambda: shops.join(cities, key_of, joiner), "join(other, [joiner], key_selector=…")
    stored = cs.Materialized(store="kept")
    refused("CS-136", lambda: shops.join(cities, joiner, key_selector=key_of, materialized=stored))
    refused("CS-101", lambda: shops.join(cities, joiner, key_selector=key_of, named="x"), "Named")
    table = builder.table("rows", JSON)
    refused("CS-135", lambda: shops.join(table, joiner, key_selector=key_of), "not a KTable", "global_table")
    other = cs.StreamsBuilder().global_table("cities", JSON)
    refused("CS-135", lambda: shops.join(other, joiner, key_selector=key_of), "different builders")
    typed = cs.StreamsBuilder()
    left, right = typed.global_table("left", TYPED), typed.global_table("right", TYPED)
    refused("CS-114", lambda: left.join(right, joiner, key_selector="nothing"))


def test_it_is_described(builder: Any, shops: Any, cities: Any) -> None:
    view = shops.join(cities, joiner, key_selector=key_of)
    orders = builder.stream("orders", JSON)
    orders.join(view, joiner, key_selector=lambda order: order).to("out", cs.Produced(value=serdes.json()))
    topology = builder.build()
    assert topology.describe().startswith(
        """Topologies:
   Sub-topology: 0 for global store (will not generate tasks)
    Source: shops-source (topics: [shops])
      --> shops
    Processor: shops (stores: [shops])
      --> shops.join(cities)
      <-- shops-source
    Source: cities-source (topics: [cities])
      --> cities
    Processor: cities (stores: [cities])
      --> shops.join(cities)
      <-- cities-source
    Processor: shops.join(cities) (stores: [shops, cities])
      --> none
      <-- shops, cities
  Sub-topology: 1
"""
    )
    assert "|left|" in topology.to_mermaid()
    assert topology.to_dict()["nodes"][2]["operator"] == "join"


def city_or_raise(shop: Any, city: Any) -> Any:
    return {"name": shop["name"], "people": 100 // city["size"]}


def with_view(read_as: str, **settings: Any) -> cs.TopologyTestDriver:
    builder = cs.StreamsBuilder()
    shops, cities = builder.global_table("shops", CONSUMED), builder.global_table("cities", CONSUMED)
    view = shops.join(cities, city_or_raise, key_selector=key_of)
    orders = getattr(builder, read_as)("orders", CONSUMED)
    if read_as == "stream":
        made = orders.left_join(view, joiner, key_selector=lambda order: order)
    else:
        made = orders.left_join(view, joiner, foreign_key=lambda order: order).to_stream()
    made.to("results", cs.Produced(value=serdes.json()))
    return cs.TopologyTestDriver(builder.build(), **settings)


def pipe(driver: cs.TopologyTestDriver, topic: str, *records: Any) -> None:
    driver.create_input_topic(topic, TEXT, serdes.json()).pipe_records(records)


def read(driver: cs.TopologyTestDriver, topic: str = "results") -> list[Any]:
    return driver.create_output_topic(topic, TEXT, serdes.json()).read_key_values()


SHOPS = [("s", {"name": "S", "city": "c"}, 0), ("t", {"name": "T", "city": "d"}, 0)]
CITIES = [("c", {"size": 0}, 0), ("d", {"size": 5}, 0)]


@pytest.mark.parametrize("read_as", ["stream", "table"])
@pytest.mark.parametrize("size", [1, 9])
def test_a_function_that_fails_stops_the_application(read_as: str, size: int) -> None:
    driver = with_view(read_as, commit_every=size, partitions=2)
    pipe(driver, "shops", *SHOPS)
    driver.commit()

    def process() -> None:
        pipe(driver, "cities", *CITIES)
        pipe(driver, "orders", ("o", "s", 1))
        driver.commit()

    with pytest.raises(
        cs.ProcessingError, match=r"view shops.join\(cities\), in a look-up .*ZeroDivision"
    ) as caught:
        process()
    assert caught.value.code == "CS-501"


@pytest.mark.parametrize("size", [1, 9])
def test_a_record_that_looks_up_a_row_that_fails_is_a_bad_record(size: int) -> None:
    with with_view(
        "stream", commit_every=size, partitions=2, processing_errors=cs.DeadLetter("bad")
    ) as driver:
        pipe(driver, "shops", *SHOPS)
        pipe(driver, "cities", *CITIES)
        pipe(driver, "orders", ("o", "s", 1), ("p", "t", 2), ("q", "none", 3))
        driver.commit()
        assert sorted(read(driver)) == [("p", ["t", {"name": "T", "people": 20}]), ("q", ["none", None])]
        assert read(driver, "bad") == [("o", "s")]


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("partitions", [1, 3])
def test_for_a_table_a_row_that_fails_is_not_there(size: int, partitions: int) -> None:
    with with_view(
        "table", commit_every=size, partitions=partitions, processing_errors=cs.DeadLetter("bad")
    ) as driver:
        pipe(driver, "shops", *SHOPS)
        pipe(driver, "cities", *CITIES[1:])
        pipe(driver, "orders", ("o", "s", 1), ("p", "t", 2))
        driver.commit()
        assert dict(read(driver)) == {"o": ["s", None], "p": ["t", {"name": "T", "people": 20}]}
        pipe(driver, "cities", ("d", {"size": 0}, 3))
        driver.commit()
        assert dict(read(driver)) == {"p": ["t", None]}
        assert read(driver, "bad") == [("t", None)]
        pipe(driver, "orders", ("q", "t", 4))
        driver.commit()
        assert (read(driver), read(driver, "bad")) == ([("q", ["t", None])], [("q", "t")])


def queried() -> cs.Topology:
    """shops → cities → lands, as a view of a view."""
    builder = cs.StreamsBuilder()
    shops, cities, lands = (builder.global_table(name, CONSUMED) for name in ("shops", "cities", "lands"))
    landed = cities.left_join(
        lands, lambda city, land: {**city, "land": land}, key_selector=lambda city: city["land"]
    )
    shops.join(landed, city_or_raise_too, key_selector=key_of, named=cs.Named("located"))
    return builder.build()


def city_or_raise_too(shop: Any, city: Any) -> Any:
    return None if shop["name"] == "hidden" else {**city_or_raise(shop, city), "land": city["land"]}


INPUTS: dict[str, list[Any]] = {
    "shops": [
        *SHOPS[1:],
        ("u", {"name": "U", "city": "d"}, 1),
        ("v", {"name": "V", "city": "none"}, 1),
        ("a", {"name": "hidden", "city": "d"}, 1),
        ("w", {"name": "W", "city": "d"}, 1),
        ("w", None, 2),
    ],
    "cities": [("d", {"size": 5, "land": "n"}, 0)],
    "lands": [("n", "Norway", 9)],
}


def check_queries(store: Any) -> None:
    row = {"name": "T", "people": 20, "land": "Norway"}
    assert store.get("t") == row
    assert [store.get(key) for key in ("v", "a", "w", "?")] == [None] * 4
    assert store.get_many(["u", "v", "t"]) == {"u": {**row, "name": "U"}, "t": row}
    assert list(store.all()) == [("t", row), ("u", {**row, "name": "U"})]
    assert [key for key, _ in store.range("u")] == [key for key, _ in store.prefix("u")] == ["u"]
    assert store.to_polars()["timestamp"].to_list() == [9, 9]
    assert store.approximate_count() >= 2
    assert store.kind == "key-value"
    with pytest.raises(cs.StateError, match="keeps no versions"):
        store.get("t", as_of_time=1)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_view_can_be_queried(partitions: int) -> None:
    with cs.TopologyTestDriver(queried(), partitions=partitions, commit_every=4) as driver:
        store = driver.get_key_value_store("located")
        assert (store.get("t"), list(store.all()), store.to_arrow().num_rows) == (None, [], 0)
        for topic, records in INPUTS.items():
            pipe(driver, topic, *records)
        driver.commit()
        check_queries(store)
        assert driver.get_key_value_store("cities.left_join(lands)").get("d")["land"] == "Norway"
        pipe(driver, "cities", ("d", {"size": 0, "land": "n"}, 10))
        driver.commit()
        for ask in (lambda: store.get("t"), lambda: list(store.all())):
            with pytest.raises(cs.ProcessingError, match="joiner of the view located") as caught:
                ask()
            assert caught.value.where["operator"] == "located"
        for wrong in (driver.get_window_store, driver.get_versioned_store):
            with pytest.raises(cs.StateError):
                wrong("located")


def test_a_view_of_a_running_application_can_be_queried(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(shops=1, cities=1, lands=1)
    with streams(queried(), world.config()) as app:
        for topic, records in INPUTS.items():
            world.append(topic, records, TEXT, serdes.json())
        with pytest.raises(cs.StateError) as caught:
            app.store("located")
        assert caught.value.code == "CS-713"
        app.process_available()
        store = app.store("located")
        check_queries(store)
        world.append("lands", [("n", "Norge", 10)], TEXT, serdes.json())
        app.process_available()
        assert store.get("t")["land"] == "Norge"
    with pytest.raises(cs.StateError, match="located"):
        cs.open_store(world.config().state_path, "located")


@pytest.mark.parametrize("single_task_rows", [0, 1_000])
def test_an_application_joins_with_a_view(tmp_path: Path, single_task_rows: int) -> None:
    """In one task, and with a task for each share of the topics and for each state partition."""
    builder, out = cs.StreamsBuilder(), cs.Produced(key=TEXT, value=serdes.json())
    shops, cities = builder.global_table("shops", CONSUMED), builder.global_table("cities", CONSUMED)
    view = shops.left_join(
        cities, lambda shop, city: [shop["name"], city and city["size"]], key_selector=key_of
    )
    orders, products = builder.stream("orders", CONSUMED), builder.table("products", CONSUMED)
    orders.join(view, joiner, key_selector=lambda order: order).to("joined", out)
    products.join(view, joiner, foreign_key=lambda product: product).to("followed", out)
    topology = builder.build()
    world = World(tmp_path, single_task_rows=single_task_rows)
    world.create(shops=2, cities=1, orders=2, products=2, joined=1, followed=1)
    config = world.config(partitions=3)

    def process(**records: list[Any]) -> None:
        for topic, given in records.items():
            world.append(topic, given, TEXT, serdes.json())
        with streams(topology, config) as app:
            app.process_available()

    process(shops=SHOPS, orders=[("o", "s", 1)], products=[("p", "s", 1), ("q", "t", 1)])
    process(cities=[("c", {"size": 7}, 2)], orders=[("o2", "s", 3)])
    process(cities=[("d", {"size": 8}, 4)])
    read = [(one.key, one.value) for one in world.read("joined", TEXT, serdes.json())]
    assert read == [("o", ["s", ["S", None]]), ("o2", ["s", ["S", 7]])]
    assert world.table("followed", TEXT, serdes.json()) == {"p": ["s", ["S", 7]], "q": ["t", ["T", 8]]}


def test_a_selected_key_of_the_wrong_type() -> None:
    builder = cs.StreamsBuilder()
    shops, cities = builder.global_table("shops", CONSUMED), builder.global_table("cities", CONSUMED)
    view = shops.left_join(cities, joiner, key_selector=lambda shop: 7)
    orders = builder.stream("orders", CONSUMED)
    orders.left_join(view, joiner, key_selector=lambda order: order).to(
        "results", cs.Produced(value=serdes.json())
    )
    driver = cs.TopologyTestDriver(builder.build())
    pipe(driver, "shops", SHOPS[0])
    with pytest.raises(cs.SerdeError) as caught:
        pipe(driver, "orders", ("o", "s", 1))
    assert caught.value.code == "CS-401"


def test_values_keep_their_form_and_rows_their_headers_and_times() -> None:
    """A view is stored nowhere, so its rows are what the joiner made: a tuple stays one."""
    builder = cs.StreamsBuilder()
    shops, cities = builder.global_table("shops", CONSUMED), builder.global_table("cities", CONSUMED)
    view = shops.join(cities, lambda shop, city: (shop["name"], city["size"]), key_selector=key_of)
    orders = builder.table("orders", CONSUMED)
    table = orders.join(
        view, lambda order, row: [order, type(row).__name__, *row], foreign_key=lambda order: order
    )
    table.to_stream().to("results", cs.Produced(value=serdes.json()))
    with cs.TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "shops", SHOPS[1])
        pipe(driver, "cities", CITIES[1])
        pipe(driver, "orders", ("o", "t", 7))
        driver.create_input_topic("cities", TEXT, serdes.json()).pipe_input(
            "d", {"size": 6}, 9, [("h", b"x")]
        )
        results = driver.create_output_topic("results", TEXT, serdes.json()).read_records()
        assert results == [
            cs.TestRecord("o", ["t", "tuple", "T", 5], 7),
            cs.TestRecord("o", ["t", "tuple", "T", 6], 9, (("h", b"x"),)),
        ]
