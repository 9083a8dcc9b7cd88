"""A key that a function takes from the left value, of a type that the keys of the other side never have: refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes


@dataclass
class Product:
    merchant: str
    number: int
    small: int | None


def text(product: Any) -> str:
    return str(product["merchant"])


def perhaps(product: Any) -> str | None:
    return None


def number(product: Any) -> int:
    return 7


def unknown(product: Any) -> Any:
    return 7


def pair(left: Any, right: Any) -> Any:
    return [left, right]


JOINS: dict[str, Callable[[cs.StreamsBuilder, Any, Any, Any], object]] = {
    "foreign_key": lambda b, left, key, by: b.table("products", value=left).join(
        b.table("merchants", key=key), pair, foreign_key=by
    ),
    "foreign key of 'shop'": lambda b, left, key, by: b.table("products", value=left).join_many(
        {"shop": (b.table("merchants", key=key), by)}, pair
    ),
    "foreign_key, global": lambda b, left, key, by: b.table("products", value=left).left_join(
        b.global_table("merchants", key=key), pair, foreign_key=by
    ),
    "key_selector": lambda b, left, key, by: b.stream("products", value=left).join(
        b.global_table("merchants", key=key), pair, key_selector=by
    ),
    "key_selector of a view": lambda b, left, key, by: b.global_table("products", value=left).join(
        b.global_table("merchants", key=key), pair, key_selector=by
    ),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(
    ("left", "key", "by", "types"),
    [
        (Product, int, "merchant", ("String", "int64")),
        (Product, str, "number", ("Int64", "string")),
        (Product, int, pl.col("merchant").str.to_lowercase(), ("String", "int64")),
        (dict, int, text, ("String", "int64")),
        (dict, serdes.int32(), perhaps, ("String", "int32")),
        (dict, str, number, ("Int64", "string")),
        (Product, {"id": pl.Int64}, "number", ("Int64", "json[{id: Int64}]")),
        (
            Product,
            {"id": pl.Int64},
            pl.struct(id="merchant"),
            ("Struct({'id': String})", "json[{id: Int64}]"),
        ),
    ],
)
def test_keys_of_two_types_never_meet(
    join: str, left: Any, key: Any, by: Any, types: tuple[str, str]
) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        JOINS[join](cs.StreamsBuilder(), left, key, by)
    assert caught.value.code == "CS-134"
    assert f"is {types[0]}, and the keys of merchants are {types[1]}" in caught.value.what
    assert str(caught.value.where["line"]).startswith(__file__)
    assert caught.value.next


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize(
    ("left", "key", "by"),
    [
        (Product, str, "merchant"),
        (Product, int, "number"),
        (Product, serdes.int32(), "number"),  # as wide as its values
        (Product, serdes.int16(), "small"),
        (Product, serdes.uuid(), "merchant"),
        (Product, dict, "merchant"),
        (Product, {"id": pl.Int64}, pl.struct(id="number")),
        (Product, int, pl.col("merchant").cast(pl.Int64, strict=False)),
        (dict, str, perhaps),
        (dict, int, number),
        *((dict, key, "merchant") for key in (str, int, dict)),
        *((Product, key, unknown) for key in (str, int, dict)),
    ],
)
def test_keys_that_may_meet(join: str, left: Any, key: Any, by: Any) -> None:
    JOINS[join](cs.StreamsBuilder(), left, key, by)


def test_a_stream_that_selected_another_type_of_key() -> None:
    builder = cs.StreamsBuilder()
    products, merchants = builder.stream("products", value=Product), builder.table("merchants", key=int)
    products.select_key("number").join(merchants, pair)
    with pytest.raises(cs.TopologyError) as caught:
        products.select_key("merchant").join(merchants, pair)
    assert caught.value.code == "CS-134"
    assert "is String, and the keys of merchants are int64" in caught.value.what
