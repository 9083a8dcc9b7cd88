"""A state folder describes its serdes as data: any process reads its stores, and nothing in it is code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.query.text import parse_key
from crossstream.serdes.described import PlainJson, made
from crossstream.serdes.description import Described, as_data, of_data
from crossstream.serdes.json.plain import SchemaJson
from crossstream.serdes.own import known
from crossstream.storage.commit_log import BatchLog
from tests.cli.cases import call
from tests.docs.state_folder import Writer
from tests.faults.one_process import streams
from tests.pairs import Pair
from tests.spark.world import World

TEXT = serdes.string()


class Status(Enum):
    OPEN = "open"


@dataclass(frozen=True)
class Place:
    shop: int
    city: str


@dataclass(frozen=True)
class Order:
    price: float
    place: Place
    note: str | None = None


@dataclass(frozen=True)
class Dated:
    at: datetime
    amount: Decimal


class Camel(msgspec.Struct, rename="camel"):
    shop_id: int


class Omitting(msgspec.Struct, omit_defaults=True):
    shop: int
    city: str = "Bern"


class Tagged(msgspec.Struct, tag=True):
    shop: int


class Listed(msgspec.Struct, array_like=True):
    shop: int


@dataclass
class Shouting:
    city: str

    def __post_init__(self) -> None:
        self.city = self.city.upper()


@dataclass
class WithStatus:
    status: Status


def read_back(serde: serdes.Serde, **given: serdes.Serde) -> serdes.Serde:
    """The serde as another process has it."""
    return made(msgspec.json.decode(msgspec.json.encode(known(serde).described()), type=Described), given)


SCHEMA = {
    "id": pl.UInt8,
    "tags": pl.List(pl.Struct({"n": pl.Float32})),
    "price": pl.Decimal(10, 2),
    "at": pl.Datetime("ms", "UTC"),
    "took": pl.Duration("us"),
    "on": pl.Date,
    "raw": pl.Binary,
}
WHOLE = [
    *(getattr(serdes, name)() for name in ("string", "bytes", "boolean", "uuid", "json")),
    *(getattr(serdes, name)() for name in ("int16", "int32", "int64", "float32", "float64")),
    *map(serdes.json, (int, str, float, bool, UUID, datetime, Decimal)),
    serdes.json(SCHEMA),
    *(SchemaJson(dtype) for dtype in (pl.Decimal(38, 2), pl.List(pl.Struct({"n": pl.UInt64})))),
    serdes.left_or_right(TEXT, serdes.left_or_right(serdes.int64(), serdes.json())),
]


@pytest.mark.parametrize("serde", WHOLE, ids=lambda serde: serde.name)
def test_a_serde_of_the_package_is_the_same_in_any_process(serde: serdes.Serde) -> None:
    assert read_back(serde) == serde


def test_all_serdes_that_the_package_offers_are_described() -> None:
    """Without those that need a type, a schema, other serdes or a registry, they are made by their name."""
    offered = {
        name
        for name in serdes.__all__
        if name not in ("Serde", "avro", "json", "left_or_right", "session_windowed", "windowed")
        and not name.startswith("confluent_")
    }
    assert offered <= {serde.name for serde in WHOLE}


def test_a_serde_of_the_user_with_the_name_of_another_is_none_of_ours() -> None:
    class Fake(Pair):
        name = "string"

    assert known(Fake()).described().kind == "own"


dtypes = st.recursive(
    st.sampled_from(
        [
            *(pl.Int8(), pl.Int64(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.String(), pl.Boolean()),
            *(pl.Binary(), pl.Date(), pl.Time(), pl.Duration("us"), pl.Datetime("ms"), pl.Decimal(38, 18)),
            pl.Datetime("us", "UTC"),
        ]
    ),
    lambda inner: (
        st.builds(pl.List, inner) | st.dictionaries(st.text("ab:", min_size=1), inner).map(pl.Struct)
    ),
    max_leaves=6,
)


@given(dtypes)
def test_types_of_columns_are_data(dtype: pl.DataType) -> None:
    assert of_data(json.loads(json.dumps(as_data(dtype)))) == dtype


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("known", None), ("schema", None), ("class", "Int64"),
        ("schema", {"struct": {"a": "Object"}}),
        ("schema", {"struct": {"a": "os.system"}}), ("schema", {"eval": "1"}), ("schema", {"struct": 7}),
        ("schema", {"datetime": ["us", "no/zone", 3]}), ("pickled", None), ("left_or_right", None),
        ("avro", None), ("confluent_avro", None), ("confluent_json", None), ("confluent_protobuf", None),
    ],
)  # fmt: skip
def test_what_describes_no_serde_is_damage(kind: str, columns: Any) -> None:
    with pytest.raises(cs.StateError, match="the description of the serde x cannot be read") as caught:
        made(Described("x", kind, columns), {})
    assert caught.value.code == "CS-701"


class TestWithoutTheClass:
    def test_objects_are_dicts_and_columns_keep_their_types(self) -> None:
        serde = serdes.json(Order)
        rows = serde.encode_objects([Order(2, Place(7, "Bern")), None, Order(0.5, Place(8, "Basel"), "x")])
        plain = read_back(serde)
        assert plain.decode_objects(rows) == [
            {"price": 2.0, "place": {"shop": 7, "city": "Bern"}, "note": None},
            None,
            {"price": 0.5, "place": {"shop": 8, "city": "Basel"}, "note": "x"},
        ]
        assert plain.decode_series(rows).equals(serde.decode_series(rows))
        assert (plain.name, plain.dtype) == (serde.name, serde.dtype)

    @given(
        st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.floats(allow_nan=False, allow_infinity=False)
    )
    def test_a_dict_of_plain_fields_is_written_as_the_class_writes_it(
        self, shop: int, city: str, price: float
    ) -> None:
        order = Order(price, Place(shop, city), None)
        data = serdes.json(Order).serialize(order)
        plain = {"place": {"city": city, "shop": shop}, "note": None, "price": price}
        assert read_back(serdes.json(Order)).serialize(plain) == data
        assert read_back(serdes.json(Camel)).serialize({"shopId": shop}) == serdes.json(Camel).serialize(
            Camel(shop)
        )

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Omitting, {"shop": 7, "city": "Bern"}),
            (Tagged, {"shop": 7}),
            (Listed, [7]),
            (Shouting, {"city": "Bern"}),
            (WithStatus, {"status": "open"}),
            (Dated, {"at": "2026-01-31T12:00:00Z", "amount": "1.50"}),
            (list[Place], [{"shop": 7, "city": "Bern"}]),
            (Place, {"shop": 7}),
            (Place, "Bern"),
            (Order, {"price": 1.0, "place": {"shop": 7}, "note": None}),
        ],
    )
    def test_a_key_of_which_the_bytes_are_not_known_is_refused(self, kind: Any, value: Any) -> None:
        """It would find nothing, in silence."""
        serde = read_back(serdes.json(kind))
        assert isinstance(serde, PlainJson)
        with pytest.raises(cs.SerdeError, match="without its class") as caught:
            serde.serialize(value)
        assert caught.value.code == "CS-403"
        assert "pass serdes={" in str(caught.value.next)


def written(root: Path, key: serdes.Serde, value: serdes.Serde, rows: list[tuple[Any, Any]]) -> None:
    """State with the store "rows"."""
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=key, value=value), cs.Materialized(store="rows"))
    writer = Writer(root, builder.build())
    writer.run(
        {"rows": [(key.serialize(k) or b"", value.serialize(v), at) for at, (k, v) in enumerate(rows)]}
    )
    writer.close()


ORDERS = [
    (Place(7, "Bern"), Order(1, Place(7, "Bern"))),
    (Place(8, "Basel"), Order(2, Place(8, "Basel"), "x")),
]


class TestOpeningAStore:
    def test_of_classes_that_this_process_does_not_have(self, tmp_path: Path) -> None:
        written(tmp_path, serdes.json(Place), serdes.json(Order), ORDERS)
        store = cs.open_store(tmp_path, "rows")
        assert store.get({"city": "Bern", "shop": 7}) == {
            "price": 1.0, "place": {"shop": 7, "city": "Bern"}, "note": None
        }  # fmt: skip
        assert store.get({"city": "Bern", "shop": 9}) is None
        assert store.to_polars()["value"].dtype == serdes.json(Order).dtype

    def test_with_the_classes(self, tmp_path: Path) -> None:
        written(tmp_path, serdes.json(Place), serdes.json(Order), ORDERS)
        given = {"key": serdes.json(Place), "value": serdes.json(Order)}
        by_name = {serdes.json(kind).name: serdes.json(kind) for kind in (Place, Order)}
        for passed in (given, by_name):
            assert dict(cs.open_store(tmp_path, "rows", serdes=passed).all()) == dict(ORDERS)

    def test_with_a_serde_of_the_users_own(self, tmp_path: Path) -> None:
        written(tmp_path, TEXT, Pair(), [("a", ("b", "c"))])
        with pytest.raises(cs.StateError) as caught:
            cs.open_store(tmp_path, "rows")
        assert (caught.value.code, caught.value.where["serde"]) == ("CS-703", "pair")
        assert "pass serdes={'pair': …}" in str(caught.value.next)
        for name in ("value", "pair"):
            assert cs.open_store(tmp_path, "rows", serdes={name: Pair()}).get("a") == ["b", "c"]
        assert cs.open_store(tmp_path, "rows", serdes={"value": serdes.bytes()}).get("a") == b"b,c"

    def test_with_one_inside_another(self, tmp_path: Path) -> None:
        key = serdes.left_or_right(Pair(), TEXT)
        row = cs.LeftOrRight(left=("b", "c"))
        written(tmp_path, key, TEXT, [(row, "v")])
        assert list(cs.open_store(tmp_path, "rows", serdes={"pair": Pair()}).all()) == [
            (cs.LeftOrRight(left=["b", "c"]), "v")
        ]

    def test_with_a_serde_that_the_store_does_not_have(self, tmp_path: Path) -> None:
        written(tmp_path, TEXT, Pair(), [("a", ("b", "c"))])
        with pytest.raises(cs.StateError, match="'pear'") as caught:
            cs.open_store(tmp_path, "rows", serdes={"pear": Pair()})
        assert (caught.value.code, caught.value.next) == (
            "CS-703", "pass it for one of: key, pair, string, value"
        )  # fmt: skip

    def test_from_the_command_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        written(tmp_path / "own", TEXT, Pair(), [("a", ("b", "c"))])
        (listed,) = call(capsys, "query", tmp_path / "own", "--format", "json").lines
        assert listed == {"store": "rows", "kind": "key-value", "key": "string", "value": "pair", "rows": 1}
        refused = call(capsys, "query", tmp_path / "own", "rows")
        assert refused.code != 0
        assert "CS-703" in refused.err
        written(tmp_path / "typed", serdes.json(Place), serdes.json(Order), ORDERS)
        ask = ("query", tmp_path / "typed", "rows", "get")
        (row,) = call(capsys, *ask, '{"city": "Bern", "shop": 7}', "--format", "json").lines
        assert row["value"] == {"price": 1.0, "place": {"shop": 7, "city": "Bern"}, "note": None}
        assert call(capsys, *ask, '{"city": "Bern", "shop": 9}').code == 1

    def test_the_application_has_its_own_serdes_and_classes(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.create(rows=1, pairs=1)
        builder = cs.StreamsBuilder()
        for topic, value in (("rows", serdes.json(Order)), ("pairs", Pair())):
            builder.table(topic, cs.Consumed(key=TEXT, value=value), cs.Materialized(store=topic))
        order = Order(1.0, Place(7, "Bern"))
        world.append("rows", [("a", order, 1)], TEXT, serdes.json(Order))
        world.append("pairs", [("a", ("b", "c"), 1)], TEXT, Pair())
        with streams(builder.build(), world.config()) as app:
            app.process_available()
            assert app.store("rows").get("a") == order
            assert app.store("pairs").get("a") == ["b", "c"]


REGISTRY = "mock://described"
SHOP = {"type": "record", "name": "Shop", "fields": [{"name": "city", "type": "string"}]}
PART = {"type": "record", "name": "Part", "fields": [{"name": "shop", "type": "Shop"}]}


class TestAvroAndTheRegistry:
    @pytest.mark.parametrize(
        "serde",
        [
            serdes.avro("long"),
            serdes.avro(SHOP),
            serdes.confluent_avro(REGISTRY, SHOP),
            serdes.confluent_avro(REGISTRY, PART, references={"shop": json.dumps(SHOP)}),
            serdes.confluent_avro("http://described:8081", SHOP),
            serdes.windowed(serdes.avro("string"), 1000),
        ],
        ids=lambda serde: serde.name,
    )
    def test_a_schema_is_all_that_it_takes(self, serde: serdes.Serde) -> None:
        assert read_back(serde) == serde

    @pytest.mark.parametrize(
        "serde",
        [
            serdes.avro(Place),
            serdes.confluent_avro(REGISTRY, Place),
            serdes.confluent_json(REGISTRY, Place),
        ],
        ids=lambda serde: serde.name,
    )
    def test_without_the_class_rows_are_dicts(self, serde: serdes.Serde) -> None:
        plain, row = read_back(serde), serde.serialize(Place(7, "Bern"))
        assert plain.deserialize(row) == {"shop": 7, "city": "Bern"}
        assert plain.serialize({"city": "Bern", "shop": 7}) == row

    def test_messages_are_made_of_the_files_that_describe_them(self) -> None:
        from google.protobuf.source_context_pb2 import SourceContext  # type: ignore[import-untyped]

        serde = serdes.confluent_protobuf(SourceContext, REGISTRY)
        plain, row = read_back(serde), serde.serialize(SourceContext(file_name="a"))
        assert plain.name == serde.name
        assert type(plain.deserialize(row)) is not SourceContext
        assert plain.deserialize(row).file_name == "a"
        assert plain.serialize(plain.deserialize(row)) == row

    @pytest.mark.parametrize(
        "registry",
        [
            "http://ada:secret@described:8081/?token=secret",
            {"url": "http://described:8081/", "basic.auth.user.info": "ada:secret"},
        ],
    )
    def test_what_is_secret_stays_with_the_application(self, registry: Any) -> None:
        for serde in (serdes.confluent_avro(registry, SHOP), serdes.confluent_json(registry, Place)):
            text = msgspec.json.encode(known(serde).described()).decode()
            assert "http://described:8081/" in text
            assert "secret" not in text

    @pytest.mark.parametrize("bound", [False, True], ids=["written here", "as read from a topic"])
    def test_a_store_opens_without_its_serdes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: bool
    ) -> None:
        key, value = serdes.confluent_avro(REGISTRY, "long"), serdes.confluent_avro(REGISTRY, Place)
        to_topic: Any = value
        sent = to_topic.written_to("rows", False) if bound else value
        builder = cs.StreamsBuilder()
        builder.table("rows", cs.Consumed(key=key, value=value), cs.Materialized(store="rows"))
        writer = Writer(tmp_path, builder.build())
        writer.run({"rows": [(key.serialize(7) or b"", sent.serialize(Place(7, "Bern")), 1)]})
        writer.close()
        asked, option = ({"registry": REGISTRY}, ("--registry", REGISTRY)) if bound else ({}, ())
        assert cs.open_store(tmp_path, "rows", **asked).get(7) == {"shop": 7, "city": "Bern"}
        (row,) = call(capsys, "query", tmp_path, "rows", "get", "7", "--format", "json", *option).lines
        assert row == {"key": 7, "value": {"shop": 7, "city": "Bern"}}
        (listed,) = call(capsys, "query", tmp_path, "--format", "json").lines
        assert listed["rows"] == 1

    def test_a_table_of_debezium_opens(self, tmp_path: Path) -> None:
        builder = cs.StreamsBuilder()
        source = cs.debezium(Place, key="shop", registry=REGISTRY)
        builder.table("places", source=source, materialized=cs.Materialized(store="places"))
        events: Any = serdes.confluent_avro(
            REGISTRY,
            {
                "type": "record",
                "name": "Envelope",
                "fields": [
                    {"name": "before", "type": ["null", serdes_schema(Place)]},
                    {"name": "after", "type": ["null", "Place"]},
                    {"name": "op", "type": "string"},
                ],
            },
        )
        event = events.written_to("places", False).serialize(
            {"before": None, "after": {"shop": 7, "city": "Bern"}, "op": "c"}
        )
        writer = Writer(tmp_path, builder.build())
        writer.run({"places": [(b"", event, 1)]})
        writer.close()
        assert list(cs.open_store(tmp_path, "places").all()) == [(7, {"shop": 7, "city": "Bern"})]


def serdes_schema(kind: type) -> Any:
    from crossstream.serdes.avro.types import schema_text

    return json.loads(schema_text(kind))


@pytest.mark.parametrize(
    ("serde", "text", "key"),
    [
        (serdes.avro("long"), "7", 7),
        (serdes.avro("string"), "a b", "a b"),
        (serdes.avro("string"), "7", "7"),
        (serdes.avro("string"), '"7"', "7"),
        (serdes.avro(SHOP), '{"city": "Bern"}', {"city": "Bern"}),
        (
            serdes.avro({"type": "string", "logicalType": "uuid"}),
            "6f1e7a5e-0000-4000-8000-000000000001",
            UUID("6f1e7a5e-0000-4000-8000-000000000001"),
        ),
        (serdes.confluent_json(REGISTRY), '{"a": 1}', {"a": 1}),
    ],
)
def test_a_key_as_it_is_typed(serde: serdes.Serde, text: str, key: Any) -> None:
    found = parse_key(serde, text)
    assert serde.serialize(found) == serde.serialize(key)


def test_a_key_that_the_schema_does_not_take() -> None:
    with pytest.raises(cs.ConfigError, match="'x' is not a key of this store"):
        parse_key(serdes.avro("long"), "x")


def test_every_reader_of_a_folder_is_data(tmp_path: Path) -> None:
    written(tmp_path, serdes.json(Place), Pair(), [])
    application = BatchLog(tmp_path).application()
    assert application is not None
    text = (tmp_path / "application.json").read_text()
    assert json.loads(text)["content"]["readers"]["rows"] == {
        "store": "rows",
        "kind": "key-value",
        "key": {
            "name": "json[Place]", "kind": "class", "columns": {"struct": {"shop": "Int64", "city": "String"}},
            "is_plain": True,
        },
        "value": {"name": "pair", "kind": "own"},
        "history": None, "window_size": None,
    }  # fmt: skip
