"""Values without declared type in expressions: a record means the same whatever else is in its batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.algebra.values import Values, chained

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
Record = tuple[str, bytes, bytes]
Build = Callable[[cs.StreamsBuilder], object]
EVERY = (1, 1000)


def run(build: Build, given: list[Record], every: int, **settings: Any) -> Any:
    builder = cs.StreamsBuilder()
    build(builder)
    with cs.TopologyTestDriver(builder.build(), commit_every=every, **settings) as driver:
        for topic, key, value in given:
            driver.create_input_topic(topic, BYTES, BYTES).pipe_input(key, value, 1)
        driver.commit()
        found = driver.create_output_topic("out", BYTES, BYTES).read_key_values()
        return sorted(found), driver.metrics()["dropped"]


def mapped(function: Any) -> Build:
    return lambda builder: stream(builder).map_values(function).to("out", cs.Produced(value=JSON))


def stream(builder: cs.StreamsBuilder) -> Any:
    return builder.stream("in", cs.Consumed(key=TEXT, value=JSON))


def records(*values: bytes) -> list[Record]:
    return [("in", b"%d" % number, value) for number, value in enumerate(values)]


@pytest.mark.parametrize("every", EVERY)
class TestWholeNumbersBesideOthers:
    def test_stay_whole(self, every: int) -> None:
        given = records(b'{"id":9007199254740993}', b'{"id":1.5}')
        found, _ = run(mapped(pl.struct("id")), given, every)
        assert [value for _, value in found] == [b'{"id":9007199254740993}', b'{"id":1.5}']

    def test_as_keys(self, every: int) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            keyed = stream(builder).select_key(pl.col("p").cast(pl.String))
            keyed.to("out", cs.Produced(key=TEXT, value=JSON))

        found, _ = run(build, records(b'{"p":10}', b'{"p":9.5}'), every)
        assert [key for key, _ in found] == [b"10", b"9.5"]

    @pytest.mark.parametrize("function", [pl.col("c"), lambda value: value["c"]])
    def test_as_foreign_keys(self, every: int, function: Any) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            left = builder.table("in", cs.Consumed(key=TEXT, value=JSON))
            right = builder.table("right", cs.Consumed(key=serdes.int64(), value=JSON))
            joined = left.left_join(right, lambda _, found: found, foreign_key=function)
            joined.to_stream().to("out", cs.Produced(value=JSON))

        given = [("right", serdes.int64().serialize(1) or b"", b'"one"'), *records(b'{"c":1}', b'{"c":2.5}')]
        assert run(build, given, every, processing_errors="skip") == (
            [(b"0", b'"one"')],
            {"in.left_join(right): failed": 1},
        )

    def test_as_timestamps(self, every: int) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            consumed = cs.Consumed(key=TEXT, value=JSON, timestamp_extractor=pl.col("ts"))
            builder.stream("in", consumed).to("out", cs.Produced(key=TEXT, value=JSON))

        given = records(b'{"ts":1000}', b'{"ts":2000.5}', b'{"ts":3000}')
        found, dropped = run(build, given, every, processing_errors="skip")
        assert ([key for key, _ in found], dropped) == ([b"0", b"2"], {"in: failed": 1})


@pytest.mark.parametrize("every", EVERY)
class TestObjectsBesideOthers:
    @pytest.mark.parametrize("function", [pl.col("c"), lambda value: value["c"]])
    def test_as_foreign_keys(self, every: int, function: Any) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            left = builder.table("in", cs.Consumed(key=TEXT, value=JSON))
            right = builder.table("right", cs.Consumed(key=JSON, value=JSON))
            joined = left.left_join(right, lambda _, found: found, foreign_key=function)
            joined.to_stream().to("out", cs.Produced(value=JSON))

        given = [("right", b'{"t":"a"}', b'"one"'), *records(b'{"c":{"t":"a"}}', b'{"c":{"t":"a","v":2}}')]
        found, _ = run(build, given, every)
        assert (b"0", b'"one"') in found

    def test_keep_their_fields_and_their_order(self, every: int) -> None:
        values = (b'{"c":{"t":"a"}}', b'{"c":{"v":2,"t":"a"}}', b'{"c":{"t":"a","v":null}}', b'{"c":{}}')
        found, _ = run(mapped(pl.col("c")), records(*values), every)
        assert [value for _, value in found] == [value[5:-1] for value in values]

    def test_keep_the_types_in_them(self, every: int) -> None:
        values = (b'{"c":{"n":[1,2]}}', b'{"c":{"n":[1.5]}}', b'{"c":{"n":"x"}}')
        found, _ = run(mapped(pl.col("c")), records(*values), every)
        assert [value for _, value in found] == [value[5:-1] for value in values]

    def test_a_joiner_that_takes_sides_as_a_whole(self, every: int) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            left = builder.table("in", cs.Consumed(key=TEXT, value=JSON))
            right = builder.table("right", cs.Consumed(key=TEXT, value=JSON))
            joined = left.left_join(right, pl.struct("left", "right"))
            joined.to_stream().to("out", cs.Produced(value=JSON))

        given = [("right", b"0", b'{"r":1}'), *records(b'{"a":1}', b'{"b":2.5,"a":1}')]
        found = run(build, given, every)[0]
        assert found[-2:] == [
            (b"0", b'{"left":{"a":1},"right":{"r":1}}'),
            (b"1", b'{"left":{"b":2.5,"a":1},"right":null}'),
        ]


@pytest.mark.parametrize("every", EVERY)
class TestNullsBesideOthers:
    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            (~pl.col("gone"), [b"true", b"null", b"null"]),
            (pl.col("n").abs(), [b"1", b"2", b"null"]),
            (pl.when(pl.col("gone")).then(pl.lit("x")).otherwise(pl.lit("y")), [b'"y"', b'"y"', b'"y"']),
            (pl.when(pl.col("gone")).then(1).otherwise(pl.col("n").abs()), [b"1", b"2", b"null"]),
            (pl.col("l").list.sum(), [b"0", b"null", b"3"]),
            (pl.concat_list("n", "gone"), [b"[1,0]", b"[2,null]", b"[null,null]"]),
            (pl.col("o").struct.with_fields(x=pl.field("y") + 1), [b"null"] * 3),
            (pl.col("o").struct.rename_fields(["x", "y"]), [b"null"] * 3),
        ],
        ids=str,
    )
    def test_take_the_type_that_the_expression_wants(
        self, every: int, expression: pl.Expr, expected: list[bytes]
    ) -> None:
        given = records(b'{"n":1,"gone":false,"l":[]}', b'{"n":2}', b'{"l":[1,2]}')
        found, dropped = run(mapped(pl.struct(r=expression)), given, every)
        assert ([value for _, value in found], dropped) == ([b'{"r":' + one + b"}" for one in expected], {})

    def test_lists_of_nulls_are_lists(self, every: int) -> None:
        """Of a table they would be tombstones, of a list of values the values would be lost."""

        def build(builder: cs.StreamsBuilder) -> None:
            left, right = (builder.table(name, cs.Consumed(key=TEXT, value=JSON)) for name in ("l", "r"))
            sides = (pl.col(side).struct.field("x") for side in ("left", "right"))
            joined = left.outer_join(right, pl.concat_list(*sides))
            joined.to_stream().to("out", cs.Produced(value=JSON))
            stream(builder).flat_map_values(pl.concat_list("a", "b").list.drop_nulls()).to(
                "out", cs.Produced(value=JSON)
            )

        given = [("r", b"k", b'{"x":"R"}'), ("in", b"i", b'{"b":"y"}')]
        assert run(build, given, every)[0] == [(b"i", b'"y"'), (b"k", b'[null,"R"]')]

    def test_lengths_of_time(self, every: int) -> None:
        def build(builder: cs.StreamsBuilder) -> None:
            times = stream(builder).map_values(lambda value: {"t": timedelta(days=value) if value else None})
            times.map_values(pl.struct(d=pl.col("t").dt.total_days())).to("out", cs.Produced(value=JSON))

        found, dropped = run(build, records(b"7", b"0"), every)
        assert (found, dropped) == ([(b"0", b'{"d":7}'), (b"1", b'{"d":null}')], {})

    def test_predicates(self, every: int) -> None:
        given = records(b'{"gone":false}', b"{}", b'{"gone":true}')
        build: Build = lambda builder: stream(builder).filter(~pl.col("gone")).to("out")  # noqa: E731
        assert run(build, given, every)[0] == [(b"0", b'{"gone":false}')]

    def test_a_predicate_that_is_none(self, every: int) -> None:
        build: Build = lambda builder: stream(builder).filter(pl.col("n")).to("out")  # noqa: E731
        with pytest.raises(cs.ProcessingError, match="not Boolean") as caught:
            run(build, records(b'{"n":true}', b'{"n":1}'), every)
        assert caught.value.code == "CS-503"


@pytest.mark.parametrize("every", EVERY)
def test_the_field_value_is_the_field_where_a_record_has_it(every: int) -> None:
    given = records(b'{"sensor":"s1","value":30}', b'{"sensor":"s2"}', b"7")
    found, _ = run(mapped(pl.struct(r=pl.col("value"))), given, every)
    assert [value for _, value in found] == [b'{"r":30}', b'{"r":{"sensor":"s2"}}', b'{"r":7}']


@pytest.mark.parametrize("every", EVERY)
def test_a_null_has_the_field_value_and_all_others(every: int) -> None:
    given = records(b'{"value":8,"unit":"C"}', b"null", b'{"value":null}')
    found, dropped = run(mapped(pl.struct("value", "unit")), given, every)
    nothing = b'{"value":null,"unit":null}'
    assert ([value for _, value in found], dropped) == ([b'{"value":8,"unit":"C"}', nothing, nothing], {})


@pytest.mark.parametrize("every", EVERY)
def test_fields_of_the_field_value(every: int) -> None:
    given = records(b'{"value":{"n":1}}', b"null", b'{"value":null}', b'{"n":4}', b'{"m":5}', b'{"value":{}}')
    found, dropped = run(mapped(pl.struct(r=pl.col("value").struct.field("n") + 1)), given, every)
    expected = [b'{"r":2}', b'{"r":null}', b'{"r":null}', b'{"r":5}', b'{"r":null}', b'{"r":null}']
    assert ([value for _, value in found], dropped) == (expected, {})


@pytest.mark.parametrize("every", EVERY)
def test_items_of_several_types(every: int) -> None:
    def items(builder: cs.StreamsBuilder) -> None:
        stream(builder).flat_map_values(pl.col("v")).to("out", cs.Produced(key=TEXT, value=JSON))

    given = records(b'{"v":[1,2]}', b'{"v":["x"]}', b'{"v":null}', b'{"v":[]}')
    assert run(items, given, every)[0] == [(b"0", b"1"), (b"0", b"2"), (b"1", b'"x"')]


@pytest.mark.parametrize("every", EVERY)
def test_a_record_that_no_column_holds_fails_alone(every: int) -> None:
    given = records(b'{"n":1}', b'{"n":1180591620717411303424}', b'{"n":3}')
    settings = {"deserialization_errors": "skip", "processing_errors": "skip"}
    found, dropped = run(mapped(pl.struct(m=pl.col("n") + 1)), given, every, **settings)
    assert ([value for _, value in found], sum(dropped.values())) == ([b'{"m":2}', b'{"m":4}'], 1)

    def twice(builder: cs.StreamsBuilder) -> None:
        grown = stream(builder).map_values(lambda value: {"n": value["n"] * 10**20 if value["n"] > 1 else 1})
        grown.map_values(pl.struct(m=pl.col("n") + 1)).to("out", cs.Produced(value=JSON))

    found, dropped = run(twice, records(b'{"n":1}', b'{"n":2}'), every, processing_errors="skip")
    assert ([value for _, value in found], sum(dropped.values())) == ([b'{"m":2}'], 1)


@pytest.mark.parametrize("every", EVERY)
def test_a_panic_of_polars_is_a_failure(every: int, capfd: pytest.CaptureFixture[str]) -> None:
    expression = pl.struct(r=pl.col("x").list.set_union(pl.col("y")))
    given = records(b'{"x":[1],"y":[2]}', b"{}")
    found, dropped = run(mapped(expression), given, every, processing_errors="skip")
    assert found[0] == (b"0", b'{"r":[1,2]}')
    assert len(found) + sum(dropped.values()) == 2


def test_columns_of_several_types_in_all_forms() -> None:
    def values() -> Values:
        parts = [pl.Series([1, None]), pl.Series(["a"])]
        return chained([Values(series=part) for part in parts] + [Values(objects=[{"x": 1}])])

    assert values().objects() == [1, None, "a", {"x": 1}]
    assert values().missing().tolist() == [False, True, False, False]
    assert values().wire(JSON).to_pylist() == [b"1", None, b'"a"', b'{"x":1}']
    assert values().slice(1, 3).objects() == [None, "a"]
    picked = values().take(np.array([3, -1, 0]))
    assert picked.wire(JSON).to_pylist() == [b'{"x":1}', None, b"1"]
    assert values().take(np.array([2, 2])).objects() == ["a", "a"]


@pytest.mark.parametrize("every", EVERY)
def test_an_undecodable_record_beside_values_of_several_types_is_skipped_alone(every: int) -> None:
    given = records(b'{"n":1}', b'{"n":"a"}', b'{"n":01}', b'{"n":2}')
    found, dropped = run(mapped(pl.col("n")), given, every, deserialization_errors="skip")
    assert ([value for _, value in found], dropped) == ([b"1", b'"a"', b"2"], {"in: undecodable": 1})
