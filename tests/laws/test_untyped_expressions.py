"""Without declared type, an expression gives for records together what it gives for each alone (decision 0030).

And for each what it gives where the type is declared. So does one that reads what another gave.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases, law

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()

c = pl.col
EXPRESSIONS: dict[str, pl.Expr] = {
    "plus": c("n") + 1,
    "minus": -c("n"),
    "abs": c("n").abs(),
    "times": c("n") * c("f"),
    "integer division": c("n") // 2,
    "power": c("n") ** 2,
    "round": c("f").round(1),
    "root": c("f").sqrt(),
    "logarithm": c("f").log(),
    "clip": c("n").clip(1, 2),
    "fill with a number": c("n").fill_null(0),
    "fill with text": c("s").fill_null("-"),
    "fill with truth": c("b").fill_null(False),
    "coalesce": pl.coalesce("s", c("n").cast(pl.String), pl.lit("z")),
    "not": ~c("b"),
    "and": c("b") & (c("n") > 1),
    "or": c("b") | c("s").is_null(),
    "compare": c("n") > 2,
    "is in": c("n").is_in([1, 2]),
    "same": c("n").eq_missing(c("m")),
    "join text": pl.concat_str("s", "n", ignore_nulls=True),
    "format": pl.format("{}/{}", "s", "n"),
    "upper": c("s").str.to_uppercase(),
    "split": c("s").str.split("a"),
    "replace": c("s").replace({"a": "A"}),
    "sum of a list": c("l").list.sum(),
    "first of a list": c("l").list.first(),
    "elements": c("l").list.eval(pl.element() * 2),
    "sorted": c("l").list.sort(),
    "contains": c("l").list.contains(1),
    "one list of two": pl.concat_list("n", "m"),
    "field": c("o").struct.field("c"),
    "field of it": c("o").struct.field("p").struct.field("q") + 1,
    "number of a field": c("o").struct.field("z") + 1,
    "object": c("o"),
    "objects": pl.struct("o", "items"),
    "is there": c("o").is_null(),
    "item": c("items").list.first().struct.field("p"),
    "when": pl.when(c("n") > 2).then(pl.lit("hi")).when(c("s") == "a").then(c("s")).otherwise(pl.lit("lo")),
    "when true": pl.when(c("b")).then(c("n")).otherwise(c("m")),
    "largest": pl.max_horizontal("n", "m"),
    "sum": pl.sum_horizontal("n", "m"),
    "all": pl.all_horizontal("b", c("n").is_not_null()),
    "struct": pl.struct("n", "s", "f", "value"),
    "whole": c("value"),
    "year": pl.from_epoch("n", time_unit="s").dt.year(),
    "key": c("key") + c("s"),
}

numbers = st.integers(0, 4) | st.sampled_from([0.5, 1.0, 2.5])


def fields(numbers: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    small = st.none() | numbers
    return {
        "n": small,
        "m": small,
        "f": st.none() | st.sampled_from([0.5, 1.25, -2.5, 3]),
        "s": st.none() | st.sampled_from(["a", "ab", "12", ""]),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(small, max_size=2),
        "o": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "c": st.none() | st.sampled_from("cd"),
                "z": small,
                "p": st.none() | st.fixed_dictionaries({}, optional={"q": small}),
            },
        ),
        "items": st.none()
        | st.lists(st.fixed_dictionaries({}, optional={"p": small, "t": small}), max_size=2),
        "value": small,
    }


objects = st.fixed_dictionaries({}, optional=fields(numbers))


@law
@given(st.sampled_from(sorted(EXPRESSIONS)), st.lists(objects, min_size=2, max_size=12))
@example("not", [{"b": False}, {"b": None}, {}])
@example("plus", [{"n": 9007199254740993}, {"n": 1.5}])
@example("object", [{"o": {"c": "c"}}, {"o": {"c": "c", "z": 1}}, {"o": {"z": 1, "c": "c"}}])
@example("sum of a list", [{"l": []}, {"l": [1]}, {"l": [2.5, 1]}])
@example("compare", [{"n": {}}, {"n": {"x": 1}}, {"n": None}])
def test_together_as_alone(name: str, rows: list[dict[str, Any]]) -> None:
    assert mapped(EXPRESSIONS[name], rows, 1) == mapped(EXPRESSIONS[name], rows, len(rows))


moment = pl.from_epoch(c("n") * 5000, time_unit="s").dt.convert_time_zone("Asia/Tokyo")
FIRST: dict[str, pl.Expr] = {
    "themselves": pl.struct("n", "m", "f", "s", "b", "l", "o", "items", "value"),
    "lengths": pl.struct(n=c("l").list.len(), m=c("items").list.len(), s="s", o="o", f="n"),
    "small": pl.struct(
        n=c("n").cast(pl.Int8, strict=False),
        f=c("f").cast(pl.Float32, strict=False),
        l=c("l").cast(pl.List(pl.UInt16), strict=False),
        o="o",
    ),
    "large": pl.struct(n=c("n").cast(pl.UInt64, strict=False) * 2**61, m="m", s="s"),
    "small of large": pl.struct("n", m=c("n").cast(pl.Int16, strict=False) * 20_000, s="m"),
    "moments": pl.struct(moment=moment, n=moment.dt.hour(), s=moment.dt.to_string("%H"), m="m"),
    "categories": pl.struct(s=c("s").cast(pl.Categorical), n="n"),
    "in objects": pl.struct(o=pl.struct(c="s", z=c("l").list.len(), p=pl.struct(q=c("n").cast(pl.Int8)))),
    "no objects": c("n").cast(pl.Int8, strict=False),
    "an object": c("o"),
    "null": pl.struct(n=pl.lit(None), s=pl.lit(None), f="f"),
    "constant": pl.struct(n=pl.lit(100, pl.Int8), m="m"),
}
SECOND: dict[str, pl.Expr] = {
    **EXPRESSIONS,
    "hundred times": c("n") * 100,
    "below": c("n") - 3 < 0,
    "value": c("value") * 100,
    "hour": c("moment").dt.hour(),
    "moment": c("moment").dt.offset_by("1mo"),
    "all": pl.struct(pl.all()),
}


@law
@given(
    st.sampled_from(sorted(FIRST)),
    st.sampled_from(sorted(SECOND)),
    st.lists(objects, min_size=2, max_size=8),
    st.integers(2, 8),
)
@example("moments", "hundred times", [{"n": 10, "m": 10}, {"n": 10, "m": 9.5}, {"n": 14}], 2)
@example("moments", "hour", [{"n": 10, "m": 10}, {"n": 10, "m": 9.5}, {"n": 14}], 3)
@example("lengths", "below", [{"l": [1], "s": "a"}, {"l": [1, 2], "s": 1}], 2)
@example("themselves", "all", [{"n": 2}, {"n": "t"}], 2)
@example("small", "hundred times", [{"n": 5, "o": 1}, {"n": 5, "o": "x"}], 2)
@example("large", "plus", [{"n": 4}, {"n": 1}, {"n": 4.0}], 3)
@example("no objects", "value", [{"n": 4}, {"n": None}, {"n": 3.0}], 3)
def test_together_as_alone_after_another(
    first: str, second: str, rows: list[dict[str, Any]], every: int
) -> None:
    alone, together = (mapped(SECOND[second], rows, size, FIRST[first]) for size in (1, every))
    assert alone == together


@cases(2)
@given(
    st.sampled_from(["small", "lengths", "moments", "themselves"]),
    st.sampled_from([name for name in sorted(SECOND) if name != "all"]),
    st.lists(objects, min_size=2, max_size=8),
)
@example("small", "hundred times", [{"n": 5, "o": 1}, {"n": 5, "o": "x"}])
def test_a_branch_that_looks_at_objects_changes_nothing(
    first: str, second: str, rows: list[dict[str, Any]]
) -> None:
    plain, looked = (
        mapped(SECOND[second], rows, len(rows), FIRST[first], look=look) for look in (False, True)
    )
    assert plain == looked


DECLARED = serdes.json(
    {
        **dict.fromkeys(("n", "m", "value", "key"), pl.Int64()),
        **dict.fromkeys(("s", "t"), pl.String()),
        **dict.fromkeys(("l", "k"), pl.List(pl.Int64)),
        "b": pl.Boolean(),
        "f": pl.Float64(),
        "texts": pl.List(pl.String),
        "o": pl.Struct({"c": pl.String, "z": pl.Int64, "p": pl.Struct({"q": pl.Int64})}),
        "items": pl.List(pl.Struct({"p": pl.Int64, "t": pl.Int64})),
    }
)
LIKE_DECLARED: dict[str, pl.Expr] = {
    **{name: expression for name, expression in EXPRESSIONS.items() if name != "item"},
    "list of texts": pl.concat_list("s", "t"),
    "list of three": pl.concat_list(c("n") + 1, "value", c("o").struct.field("z")),
    "list of objects": pl.concat_list("o", "o"),
    "list of truths": pl.concat_list("b", pl.lit(True), c("s").is_null()),
    "list, and length of another": pl.struct(c("l").list.len(), list=pl.concat_list("n", "m")),
    "union": c("l").list.set_union("k").list.sort(),
    "without": c("l").list.set_difference("k"),
    "contains a field": c("l").list.contains(c("n")),
    "text of a list": c("texts").list.join(c("s"), ignore_nulls=True),
    "lengths": c("l").list.len() + c("items").list.len(),
    "at": c("l").list.get(c("n"), null_on_oob=True),
    "some": c("l").list.gather([0], null_on_oob=True),
    "slice": c("l").list.slice(0, 1),
    "largest of a list": c("l").list.max(),
    "distinct": c("l").list.unique(maintain_order=True),
    "object of a list": c("l").list.to_struct(fields=["x", "y"]),
    "in a field": c("n").is_in(c("l")),
    "text and sum": pl.struct(text=pl.format("{}!", "n"), sum=c("n") + 1),
    "joined text and sum": pl.struct(text=pl.concat_str("n", "s"), sum=c("n") + 1),
    "moment": pl.datetime(c("n") + 2000, c("m") + 1, "value"),
    "day": pl.date("m", 1, 1),
    "later": pl.datetime(2020, 1, 1) + pl.duration(weeks="n", days="m"),
    "with a column": c("o").struct.with_fields(c=c("n")),
    "with a constant": c("o").struct.with_fields(c=pl.lit("x")),
    "with a field of it": c("o").struct.with_fields(
        more=pl.field("z") + 1, c=pl.field("c").str.to_uppercase()
    ),
    "with a field in a field": c("o").struct.with_fields(q=pl.field("p").struct.field("q") + c("n")),
    "key and value": pl.struct("key", "value", "n"),
}
wholes = fields(st.integers(1, 4))
declared_fields = {
    **{name: values for name, values in wholes.items() if name != "value"},
    "f": st.none() | st.sampled_from([0.5, 1.25, -2.5]),
    "t": wholes["s"],
    "k": wholes["l"],
    "key": wholes["n"],
    "texts": st.none() | st.lists(st.none() | st.sampled_from("ab"), max_size=2),
}


@cases(2)
@given(
    st.sampled_from(sorted(LIKE_DECLARED)),
    st.none() | st.fixed_dictionaries({"value": wholes["value"]}, optional=declared_fields),
)
@example("list of texts", {"value": 1, "t": "x"})
@example("sum", {"value": 1})
@example("struct", None)
@example("key and value", None)
@example("with a constant", {"value": 1})
@example("with a field of it", {"value": 1, "o": {"z": 1}})
@example("later", {"value": 1})
@example("joined text and sum", {"value": 1})
@example("in a field", {"value": 1, "n": 2})
def test_as_where_a_type_is_declared(name: str, row: dict[str, Any] | None) -> None:
    """But for a field `value` that only some records have, and fields that are null in one and missing in the other."""
    found, declared = (mapped(LIKE_DECLARED[name], [row], 1, serde=serde) for serde in (JSON, DECLARED))
    assert without_nulls(found) == without_nulls(declared)


def without_nulls(given: Any) -> Any:
    """Keys and values that came out, and what was dropped; of objects the fields that are not null."""

    def plain(value: dict[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in value.items() if item is not None}

    records, dropped = given
    return [(key, json.loads(value, object_hook=plain)) for key, value in records], dropped


@dataclass
class Price:
    d: Decimal | None = None
    some: tuple[Decimal | None, ...] | None = None


def exact(value: Any) -> Any:
    """JSON with its texts as Decimals, and an object "o" as a `Price`."""
    if isinstance(value, dict):
        fields = {name: exact(item) for name, item in value.items()}
        return fields if fields.get("o") is None else {**fields, "o": Price(**fields["o"])}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return Decimal(value) if isinstance(value, str) else value


decimals = st.none() | st.sampled_from(
    ["1.5", "10.25", "1E+3", "0E-9", "-0.0", "7", "2.000", "NaN", "1E+40", "1E-40"]
)
some = st.none() | st.lists(decimals, max_size=2)
PRICES: dict[str, st.SearchStrategy[Any]] = {
    "d": decimals | st.integers(0, 3),
    "l": some,
    "ll": st.none() | st.lists(some, max_size=2),
    "o": st.none() | st.fixed_dictionaries({}, optional={"d": decimals, "some": some}),
    "items": st.none() | st.lists(st.fixed_dictionaries({}, optional={"d": decimals}), max_size=2),
}
OF_PRICES: dict[str, pl.Expr] = {
    "itself": c("d"),
    "third": c("d") / 3,
    "product": c("d") * c("d"),
    "text": c("d").cast(pl.String),
    "sum": c("l").list.sum(),
    "first third": c("l").list.first() / 3,
    "texts": c("l").cast(pl.List(pl.String)),
    "lists": c("ll"),
    "object": c("o"),
    "third of a field": c("o").struct.field("d") / 3,
    "list of a field": c("o").struct.field("some"),
    "objects": c("items"),
    "first of objects": c("items").list.first().struct.field("d") / 3,
    "whole": c("value"),
}


@law
@given(
    st.sampled_from(sorted(OF_PRICES)),
    st.lists(st.fixed_dictionaries({}, optional=PRICES), min_size=2, max_size=12),
)
@example("third", [{"d": "1.5"}, {"d": "10.25"}, {"d": "1E+3"}])
@example("texts", [{"l": ["1.5", "2.25"]}, {"l": ["1.5"]}])
@example("object", [{"o": {"d": "1.5"}}, {"o": {"d": "2.25"}}, {"o": {"d": None}}])
@example("objects", [{"items": [{"d": "1.5"}]}, {"items": [{"d": "2.25"}]}])
@example("itself", [{"d": "1E+40"}, {"d": "NaN"}, {"d": "1"}])
def test_decimals_together_as_alone(name: str, rows: list[dict[str, Any]]) -> None:
    assert mapped(OF_PRICES[name], rows, 1, exact) == mapped(OF_PRICES[name], rows, len(rows), exact)


def mapped(
    expression: pl.Expr,
    rows: list[Any],
    every: int,
    first: Callable[[Any], Any] | pl.Expr | None = None,
    serde: Any = JSON,
    look: bool = False,
) -> Any:
    """What comes out and what fails, with so many records in each batch; or which error.

    ``first``: makes the values of JSON's. ``look``: a callable in another branch looks at them.
    """
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serde))
    if first is not None:
        stream = stream.map_values(first)
    if look:
        stream.foreach(lambda value: None)
    stream.map_values(pl.struct(result=expression)).to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, processing_errors="skip") as driver:
        topic = driver.create_input_topic("in", BYTES, BYTES)
        for number, row in enumerate(rows):
            try:
                topic.pipe_input(b"%d" % number, json.dumps(row).encode())
            except cs.ProcessingError as error:
                return error.code
        try:
            driver.commit()
        except cs.ProcessingError as error:
            return error.code
        found = driver.create_output_topic("out", BYTES, BYTES).read_key_values()
        return found, driver.metrics()["dropped"]
