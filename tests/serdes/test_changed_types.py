"""A type that changes between two runs: what the state holds of the one before is read, or the error says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.docs.state_folder import Writer

TEXT = serdes.string()


def order(**fields: Any) -> Any:
    """A type called Order. ``fields``: their types, or type and default."""
    return msgspec.defstruct(
        "Order", [(name, *of) if isinstance(of, tuple) else (name, of) for name, of in fields.items()]
    )


BEFORE = order(customer=str, amount=int)
NEW_FIELD = order(customer=str, amount=int, currency=str)
OTHER_TYPE = order(customer=str, amount=list[int])
DEFAULT = order(customer=str, amount=int, currency=(str, "EUR"))
REMOVED = order(customer=str)


def text_of(left: Any, right: Any) -> str:
    return f"{left} {right}"


Build = Callable[[cs.StreamsBuilder, serdes.Serde], None]


def by_foreign_key(builder: cs.StreamsBuilder, value: serdes.Serde) -> None:
    orders = builder.table("orders", cs.Consumed(key=TEXT, value=value), cs.Materialized(store="orders"))
    others = builder.table("others", cs.Consumed(key=TEXT, value=TEXT))
    orders.join(
        others, text_of, foreign_key=lambda row: row.customer, materialized=cs.Materialized(store="joined")
    )


def by_expression(builder: cs.StreamsBuilder, value: serdes.Serde) -> None:
    orders = builder.table("orders", cs.Consumed(key=TEXT, value=value), cs.Materialized(store="orders"))
    others = builder.table("others", cs.Consumed(key=TEXT, value=TEXT))
    joiner = pl.struct(left=pl.col("left"), right=pl.col("right"))
    foreign_key = pl.col("customer")
    orders.join(others, joiner, foreign_key=foreign_key, materialized=cs.Materialized(store="joined"))


def by_key(builder: cs.StreamsBuilder, value: serdes.Serde) -> None:
    orders = builder.table("orders", cs.Consumed(key=TEXT, value=value), cs.Materialized(store="orders"))
    others = builder.table("others", cs.Consumed(key=TEXT, value=TEXT))
    orders.join(others, text_of, materialized=cs.Materialized(store="joined"))


def of_versions(builder: cs.StreamsBuilder, value: serdes.Serde) -> None:
    kept = cs.Materialized(store="orders", history_retention="1 hour")
    orders = builder.table("orders", cs.Consumed(key=TEXT, value=value), kept)
    others = builder.table("others", cs.Consumed(key=TEXT, value=TEXT))
    orders.join(others, text_of, materialized=cs.Materialized(store="joined"))


def of_streams(builder: cs.StreamsBuilder, value: serdes.Serde) -> None:
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=value))
    others = builder.stream("others", cs.Consumed(key=TEXT, value=TEXT))
    joined = orders.join(
        others, text_of, cs.JoinWindows.of("1 hour"), cs.StreamJoined(store="orders", other_store="others")
    )
    joined.to_table(materialized=cs.Materialized(store="joined", key=TEXT))


def writer(root: Path, build: Build, value: serdes.Serde) -> Writer:
    builder = cs.StreamsBuilder()
    build(builder, value)
    return Writer(root, builder.build())


def kept_before(root: Path, build: Build) -> Writer:
    """The application of today over the state of the one before."""
    first = writer(root, build, serdes.json(BEFORE))
    old = b'{"customer":"c","amount":1}'
    rows = [(b"a", old, 1), (b"b", old, 2), (b"c", old, 3)]
    first.run({"orders": rows})
    first.close()
    return first


@contextmanager
def later(root: Path, build: Build, before: Writer, kind: type) -> Iterator[Writer]:
    made = writer(root, build, serdes.json(kind))
    made.versions, made.ends, made.batch = before.versions, before.ends, before.batch
    try:
        yield made
    finally:
        made.close()


JOINS: list[Build] = [by_foreign_key, by_expression, by_key, of_versions, of_streams]


@pytest.mark.parametrize("build", JOINS)
@pytest.mark.parametrize("kind", [NEW_FIELD, OTHER_TYPE], ids=["new field", "other type"])
def test_rows_that_cannot_be_read_are_told_to_be_in_the_state(
    tmp_path: Path, kind: type, build: Build
) -> None:
    with (
        later(tmp_path, build, kept_before(tmp_path, build), kind) as application,
        pytest.raises(cs.SerdeError) as caught,
    ):
        application.run({"others": [(b"c", b"x", 4)]})
    error = caught.value
    assert error.code == "CS-402"
    assert error.where["operator"] is not None
    assert "default" in (error.next or "")
    assert "empty state folder" in (error.next or "")
    assert "deserialization_errors" not in str(error)
    if build in (by_foreign_key, by_expression):
        assert "subscriptions" in error.where["store"]
        assert error.where["key"] == b"a"
    else:
        assert error.where["store"] == "orders"
        assert error.where["key"] in ("a", "c")


@pytest.mark.parametrize("build", JOINS)
@pytest.mark.parametrize("kind", [DEFAULT, REMOVED], ids=["default", "removed"])
def test_fields_with_defaults_may_come_and_any_may_go(tmp_path: Path, kind: type, build: Build) -> None:
    with later(tmp_path, build, kept_before(tmp_path, build), kind) as application:
        application.run({"others": [(b"c", b"x", 4)]})
    assert cs.open_store(tmp_path, "joined").get("c") is not None


def test_the_row_named_is_one_that_is_there_still(tmp_path: Path) -> None:
    before = kept_before(tmp_path, by_key)
    with later(tmp_path, by_key, before, DEFAULT) as between:
        between.run({"orders": [(b"a", b'{"customer":"c","amount":2,"currency":"EUR"}', 4)]})
    with (
        later(tmp_path, by_key, between, NEW_FIELD) as application,
        pytest.raises(cs.SerdeError) as caught,
    ):
        application.run({"others": [(b"a", b"x", 5), (b"b", b"x", 6)]})
    assert caught.value.where["key"] in ("b", "c")


def test_a_record_that_cannot_be_read_is_told_as_before(tmp_path: Path) -> None:
    with (
        later(tmp_path, by_key, kept_before(tmp_path, by_key), NEW_FIELD) as application,
        pytest.raises(cs.SerdeError) as caught,
    ):
        application.run({"orders": [(b"d", b'{"customer":"c","amount":1}', 4)]})
    assert [caught.value.where[name] for name in ("topic", "offset", "key")] == ["orders", 3, "d"]


@pytest.mark.parametrize("ask", ["get", "get_many", "all", "to_arrow"])
def test_a_query_says_the_same(ask: str) -> None:
    """Bytes that the store's serde cannot read, since a type of the same name has changed."""
    builder = cs.StreamsBuilder()
    builder.table(
        "rows", cs.Consumed(key=TEXT, value=serdes.json(dict[str, int])), cs.Materialized(store="rows")
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("rows", TEXT, TEXT).pipe_input("k", '{"n":1}')
        store = driver.get_key_value_store("rows")
    asked = {"get": ("k",), "get_many": (["k"],), "all": (), "to_arrow": ()}[ask]
    changed = replace(store, value=serdes.json(dict[str, bool]))
    with pytest.raises(cs.SerdeError, match="kept in the store rows cannot be read") as caught:
        list(getattr(changed, ask)(*asked))  # rows of all() are read when their turn comes
    assert caught.value.where["store"] == "rows"
    assert "default" in (caught.value.next or "")
