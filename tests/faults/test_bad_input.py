"""Bad records, raising functions, keys of a wrong type: a clear error, or a counted drop; nothing lost.

Every test of an error also mends what was wrong and runs on: the batch that failed is repeated, and the
results are those of a run that never failed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import CrossStreamError
from tests.application.engines import Engine, on_spark_too
from tests.pairs import Pair
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, offer, products
from tests.spark.world import World

BAD = b'{"name": "B", "mer'


@pytest.fixture
def stocked(world: World) -> World:
    """A first batch has been committed, a second one waits."""
    world.create(products=2, merchants=1, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(10, 5), TEXT, JSON, [0] * 10)
    return world


def process(engine: Engine, world: World, topology: Any = None, **settings: Any) -> Any:
    """Processes what is there; the progress of the last batch."""
    with engine.streams(topology or marketplace(), world.config(partitions=2, **settings)) as app:
        app.process_available()
        return app.progress


def failure(engine: Engine, world: World, topology: Any = None, **settings: Any) -> CrossStreamError:
    """The error that processing what is there ends with."""
    with pytest.raises(CrossStreamError) as caught:
        process(engine, world, topology, **settings)
    return caught.value


def check_rest(world: World, first: int = 100) -> None:
    """The result of the records that were good."""
    wanted = joined(products(10, 5) + products(10, 5, first=first), merchants(5))
    assert world.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted


def with_bad_records(world: World) -> None:
    """Good records around two that cannot be decoded, in partition 1 at offsets 5 and 6."""
    more = products(10, 5, first=100)
    world.append("products", more[:5], TEXT, JSON, [1] * 5)
    world.append_wire("products", [(b"bad", BAD, 7, (("trace", b"t1"),)), (b"worse", b"", 8)], [1, 1])
    world.append("products", more[5:], TEXT, JSON, [1] * 5)


class TestUndecodableRecord:
    @on_spark_too
    def test_it_stops_the_application(self, engine: Engine, stocked: World) -> None:
        process(engine, stocked)
        with_bad_records(stocked)
        error = failure(engine, stocked)
        assert isinstance(error, cs.SerdeError)
        assert error.code == "CS-402"
        place = {name: error.where[name] for name in ("operator", "topic", "partition", "offset", "key")}
        assert place == {
            "operator": "products", "topic": "products", "partition": 1, "offset": 5, "key": "bad"
        }  # fmt: skip
        assert "marketplace.py" in str(error.where["line"])
        assert "value of a record cannot be decoded" in error.what
        assert "deserialization_errors" in (error.next or "")
        assert len(stocked.read("offers", TEXT, JSON)) == 10, "nothing of the failed batch is visible"
        process(engine, stocked, deserialization_errors="skip")
        check_rest(stocked)

    def test_it_can_be_skipped_and_is_counted(self, engine: Engine, stocked: World) -> None:
        with_bad_records(stocked)
        progress = process(engine, stocked, deserialization_errors="skip")
        assert progress.dropped == {"products: undecodable": 2}
        check_rest(stocked)

    def test_it_goes_to_the_dead_letters(self, engine: Engine, stocked: World) -> None:
        with_bad_records(stocked)
        progress = process(engine, stocked, deserialization_errors=cs.DeadLetter("dead"))
        assert progress.dropped == {"products: undecodable": 2}
        check_rest(stocked)
        first, second = stocked.read("dead", serdes.bytes(), serdes.bytes())
        assert (first.key, first.value, first.ts) == (b"bad", BAD, 7)
        assert (second.key, second.value, second.ts) == (b"worse", b"", 8)
        headers = dict(first.headers)
        assert headers.pop("trace") == b"t1"
        assert b"undecodable value" in (headers.pop("crossstream.reason") or b"")
        kafkas = {
            name: headers.pop(f"__streams.errors.{name}") for name in ("exception", "message", "stacktrace")
        }
        assert all(kafkas.values())
        assert (kafkas["exception"] or b"").startswith(b"crossstream.errors.SerdeError: [CS-402] ")
        assert headers == {
            "crossstream.operator": b"products",
            **{
                f"{by}.{name}": said
                for by in ("crossstream", "__streams.errors")
                for name, said in (("topic", b"products"), ("partition", b"1"), ("offset", b"5"))
            },
        }

    def test_its_key_may_be_what_is_wrong(self, engine: Engine, stocked: World) -> None:
        builder = cs.StreamsBuilder()
        numbers = builder.stream("numbers", cs.Consumed(key=serdes.int32(), value=TEXT))
        numbers.to("out", cs.Produced(key=serdes.int32(), value=TEXT))
        topology = builder.build()
        stocked.create(numbers=1, out=1)
        stocked.append_wire("numbers", [(b"\0\0\0\1", b"a", 1), (b"\0\1", b"b", 2), (b"\0\0\0\3", b"c", 3)])
        error = failure(engine, stocked, topology)
        assert error.code == "CS-402"
        assert "key of a record cannot be decoded" in error.what
        assert error.where["offset"] == 1
        assert error.where["key"] == str(b"\0\1")
        process(engine, stocked, topology, deserialization_errors=cs.DeadLetter("dead"))
        assert stocked.table("out", serdes.int32()) == {1: "a", 3: "c"}
        assert stocked.table("dead", serdes.bytes()) == {b"\0\1": "b"}

    def test_dead_letters_of_a_repeated_batch_come_once(self, engine: Engine, stocked: World) -> None:
        from tests.faults.crash_points import POINTS, Crash

        with_bad_records(stocked)
        for point in ("after the first frame is published", "after everything is published"):
            with pytest.MonkeyPatch.context() as patch:
                POINTS[point](patch)
                with pytest.raises(Crash):
                    process(engine, stocked, deserialization_errors=cs.DeadLetter("dead"))
        process(engine, stocked, deserialization_errors=cs.DeadLetter("dead"))
        assert len(stocked.read("dead", serdes.bytes(), serdes.bytes())) == 2

    def test_dead_letters_of_a_state_that_was_made_anew(self, engine: Engine, stocked: World) -> None:
        with_bad_records(stocked)
        for run in (1, 2):
            anew = stocked.config(
                partitions=2,
                state_dir=stocked.root / f"state {run}",
                deserialization_errors=cs.DeadLetter("dead"),
            )
            with engine.streams(marketplace(), anew) as app:
                app.process_available()
            assert len(stocked.read("dead", serdes.bytes(), serdes.bytes())) == 2 * run


def allergic(left: Any, right: Any) -> Any:
    if left["name"] == "P103":
        raise KeyError("no price for this one")
    return offer(left, right)


class TestRaisingFunction:
    def test_a_joiner_stops_the_application(self, engine: Engine, stocked: World) -> None:
        process(engine, stocked)
        stocked.append("products", products(10, 5, first=100), TEXT, JSON, [1] * 10)
        error = failure(engine, stocked, marketplace(allergic))
        assert isinstance(error, cs.ProcessingError)
        assert error.code == "CS-501"
        assert error.what == (
            "the joiner of products.join(merchants) raised KeyError: 'no price for this one'"
        )
        place = {name: error.where[name] for name in ("topic", "partition", "offset", "key")}
        assert place == {"topic": "products", "partition": 1, "offset": 3, "key": "p103"}
        assert "marketplace.py" in str(error.where["line"])
        assert "processing_errors" in (error.next or "")
        assert len(stocked.read("offers", TEXT, JSON)) == 10
        process(engine, stocked)
        check_rest(stocked)

    def test_the_record_that_made_a_joiner_raise_may_be_on_the_right(
        self, engine: Engine, stocked: World
    ) -> None:
        def picky(left: Any, right: Any) -> Any:
            if right["shop"] == "closed":
                raise RuntimeError("closed")
            return offer(left, right)

        process(engine, stocked)
        stocked.append("merchants", [("m1", {"shop": "closed"}, 9)], TEXT, JSON)
        error = failure(engine, stocked, marketplace(picky))
        assert (error.code, error.where["topic"], error.where["offset"]) == ("CS-501", "merchants", 5)
        stocked.append("products", products(10, 5, first=100), TEXT, JSON)
        stocked.append("merchants", [("m1", {"shop": "shop1"}, 10)], TEXT, JSON)
        process(engine, stocked)
        check_rest(stocked)

    @pytest.mark.parametrize("setting", ["skip", cs.DeadLetter("dead")], ids=["skip", "dead-letter"])
    def test_a_joiner_may_fail_without_stopping(self, engine: Engine, stocked: World, setting: Any) -> None:
        stocked.append("products", products(10, 5, first=100), TEXT, JSON, [1] * 10)
        progress = process(engine, stocked, marketplace(allergic), processing_errors=setting)
        assert progress.dropped == {"products.join(merchants): failed": 1}
        wanted = joined(products(10, 5) + products(10, 5, first=100), merchants(5))
        del wanted["p103"]
        assert stocked.table("offers", TEXT, JSON) == wanted
        if setting == "skip":
            return
        (letter,) = stocked.read("dead", TEXT, serdes.bytes())
        headers = dict(letter.headers)
        assert letter.key == "p103"
        assert headers["crossstream.reason"] == b"KeyError: 'no price for this one'"
        assert headers["crossstream.operator"] == b"products.join(merchants)"
        assert (headers["crossstream.topic"], headers["crossstream.offset"]) == (b"products", b"3")

    @pytest.mark.timeout(120)
    def test_an_error_that_has_no_bytes(self, engine: Engine, stocked: World) -> None:
        """Half of a surrogate pair, as of an emoji that was cut: the worker cannot write its traceback."""

        def cut_off(left: Any, right: Any) -> Any:
            raise ValueError(f"no such shop: {chr(0xD83D)}")

        error = failure(engine, stocked, marketplace(cut_off))
        assert error.code == "CS-501"
        assert error.what.endswith("raised ValueError: no such shop: \\ud83d")
        process(engine, stocked, marketplace(cut_off), processing_errors=cs.DeadLetter("dead"))
        letters = stocked.read("dead", TEXT, serdes.bytes())
        reasons = {dict(letter.headers)["crossstream.reason"] for letter in letters}
        assert reasons == {b"ValueError: no such shop: \\ud83d"}

    def test_a_stream_function_that_raises(self, engine: Engine, stocked: World) -> None:
        builder = cs.StreamsBuilder()
        numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=serdes.int64()))
        numbers.map_values(lambda n: 100 // n).to("out", cs.Produced(key=TEXT, value=serdes.int64()))
        topology = builder.build()
        stocked.create(numbers=1, out=1)
        stocked.append("numbers", [("a", 1, 1), ("b", 0, 2), ("c", 4, 3)], TEXT, serdes.int64())
        error = failure(engine, stocked, topology)
        assert (error.code, error.where["offset"], error.where["key"]) == ("CS-501", 1, "b")
        assert "ZeroDivisionError" in error.what
        progress = process(engine, stocked, topology, processing_errors=cs.DeadLetter("dead"))
        assert list(progress.dropped.values()) == [1]
        assert stocked.table("out", TEXT, serdes.int64()) == {"a": 100, "c": 25}
        (letter,) = stocked.read("dead", TEXT, serdes.int64())
        assert (letter.key, letter.value, letter.ts) == ("b", 0, 2)


class TestForeignKeyOfAWrongType:
    def test_it_stops_the_application(self, engine: Engine, stocked: World) -> None:
        process(engine, stocked)
        more = products(10, 5, first=100)
        more[3] = ("p103", {"name": "P103", "merchant": 3}, 103)
        stocked.append("products", more, TEXT, JSON, [1] * 10)
        error = failure(engine, stocked)
        assert isinstance(error, cs.SerdeError)
        assert error.code == "CS-401"
        assert "foreign key has the wrong type" in error.what
        place = {name: error.where[name] for name in ("topic", "partition", "offset", "key")}
        assert place == {"topic": "products", "partition": 1, "offset": 3, "key": "p103"}
        assert "key serde" in (error.next or "")
        process(engine, stocked, marketplace(foreign_key=mended))
        check_rest(stocked)

    def test_it_can_be_skipped(self, engine: Engine, stocked: World) -> None:
        more = products(10, 5, first=100)
        bad = ("p103", {"name": "P103", "merchant": 3}, 103)
        stocked.append("products", [*more, bad], TEXT, JSON)
        progress = process(engine, stocked, processing_errors="skip")
        assert progress.dropped == {"products.join(merchants): failed": 1}


def mended(product: Any) -> Any:
    merchant = product["merchant"]
    return f"m{merchant}" if isinstance(merchant, int) else merchant


def kept(joiner: Any, value: Any) -> Any:
    """The marketplace with a result of its own kind, in a store of its own serde."""
    builder = cs.StreamsBuilder()
    left, right = (
        builder.table(topic, cs.Consumed(key=TEXT, value=JSON)) for topic in ("products", "merchants")
    )
    offers = left.join(
        right,
        joiner,
        foreign_key=lambda product: product["merchant"],
        materialized=cs.Materialized(store="offers", key=TEXT, value=value),
    )
    offers.to_stream().to("offers", cs.Produced(key=TEXT, value=value))
    return builder.build()


def sentence(product: Any, merchant: Any) -> str:
    return f"{product['name']} at {merchant['shop']}"


class TestSerdeOfTheUser:
    """It raises what Python raises."""

    def test_what_it_raises_is_a_matter_of_the_record(self, engine: Engine, world: World) -> None:
        builder = cs.StreamsBuilder()
        pairs = builder.stream("pairs", cs.Consumed(key=TEXT, value=Pair()))
        pairs.map_values(lambda pair: pair[0]).to("out", cs.Produced(value=TEXT))
        topology = builder.build()
        world.create(pairs=1, out=1)
        world.append("pairs", [("a", "x,y", 1), ("b", "one", 2), ("c", "z,y", 3)])
        error = failure(engine, world, topology)
        assert (type(error), error.code) == (cs.SerdeError, "CS-402")
        assert [error.where[name] for name in ("topic", "offset", "key", "serde")] == [
            "pairs",
            1,
            "b",
            "pair",
        ]
        assert process(engine, world, topology, deserialization_errors="skip").dropped == {
            "pairs: undecodable": 1
        }
        assert world.table("out") == {"a": "x", "c": "z"}

    def test_what_it_raises_while_writing_names_the_record(self, engine: Engine, world: World) -> None:
        builder = cs.StreamsBuilder()
        lines = builder.stream("lines", cs.Consumed(key=TEXT, value=TEXT))
        lines.map_values(lambda line: line.split(",")).to("out", cs.Produced(value=Pair()))
        world.create(lines=1, out=1)
        world.append("lines", [("a", "x,y", 1), ("b", "one", 2)])
        error = failure(engine, world, builder.build())
        assert (type(error), error.code) == (cs.SerdeError, "CS-403")
        assert [error.where[name] for name in ("topic", "offset", "key", "serde")] == [
            "lines",
            1,
            "b",
            "pair",
        ]


def named(kind: type) -> Any:
    """Lines with the names of their keys, which a global table has; those are of this type."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=serdes.json(kind))
    names = builder.global_table("names", consumed, cs.Materialized(store="names"))
    lines = builder.stream("lines", cs.Consumed(key=TEXT, value=TEXT))
    told = lines.join(names, lambda line, name: f"{line} {name.name}", key_selector=lambda key, line: key)
    told.to("out", cs.Produced(value=TEXT))
    return builder.build()


class TestTypeThatChanged:
    def test_rows_of_the_type_before_are_told_to_be_in_the_state(self, engine: Engine, world: World) -> None:
        before = msgspec.defstruct("Name", [("name", str)])
        required = msgspec.defstruct("Name", [("name", str), ("title", str)])
        default = msgspec.defstruct("Name", [("name", str), ("title", str, "")])
        world.create(names=1, lines=1, out=1)
        world.append("names", [("a", {"name": "Ada"}, 1)], TEXT, JSON)
        process(engine, world, named(before))
        world.append("lines", [("a", "x", 2)])
        error = failure(engine, world, named(required), deserialization_errors="skip")
        assert (type(error), error.code) == (cs.SerdeError, "CS-402")
        assert [error.where[name] for name in ("store", "key")] == ["names", "a"]
        assert "missing required field `title`" in error.what
        process(engine, world, named(default))
        assert world.table("out") == {"a": "x Ada"}


class TestWrongSerdeForAStore:
    def test_it_stops_the_application(self, engine: Engine, stocked: World) -> None:
        process(engine, stocked, kept(sentence, TEXT))
        stocked.append("products", products(10, 5, first=100), TEXT, JSON, [1] * 10)
        error = failure(engine, stocked, kept(offer, TEXT))
        assert isinstance(error, cs.SerdeError)
        assert error.code == "CS-401"
        assert "takes str, not dict" in error.what
        place = {name: error.where[name] for name in ("operator", "topic", "partition", "part")}
        assert place == {
            "operator": "products.join(merchants)", "topic": "products", "partition": 1, "part": "value"
        }  # fmt: skip
        assert error.where["key"] == f"p{100 + error.where['offset']}", "any of them, whichever task is first"
        assert len(stocked.read("offers")) == 10, "nothing of the failed batch is visible"
        process(engine, stocked, kept(sentence, TEXT))
        rows = {f"p{n}": f"P{n} at shop{n % 5}" for n in [*range(10), *range(100, 110)]}
        assert dict(cs.open_store(stocked.state_dir, "offers").all()) == rows
        assert stocked.table("offers") == rows

    def test_it_can_be_mended_before_anything_is_committed(self, engine: Engine, stocked: World) -> None:
        """There is no state yet that the new serde would not fit."""
        error = failure(engine, stocked, kept(offer, serdes.int64()))
        assert isinstance(error, cs.SerdeError)
        stocked.append("products", products(10, 5, first=100), TEXT, JSON, [1] * 10)
        process(engine, stocked, kept(offer, JSON))
        check_rest(stocked)
        assert failure(engine, stocked, kept(sentence, TEXT)).code == "CS-750"


class TestValueThatCannotBeWritten:
    def test_it_stops_the_application(self, engine: Engine, stocked: World) -> None:
        def topology(function: Any) -> Any:
            builder = cs.StreamsBuilder()
            lines = builder.stream("lines", cs.Consumed(key=TEXT, value=TEXT)).map_values(function)
            lines.to("out", cs.Produced(key=TEXT, value=TEXT))
            return builder.build()

        stocked.create(lines=1, out=1)
        stocked.append("lines", [("a", "x", 1), ("b", "yy", 2)])
        error = failure(engine, stocked, topology(lambda line: line if len(line) == 1 else len(line)))
        assert isinstance(error, cs.SerdeError)
        assert (error.where["key"], error.where["offset"]) == ("b", 1)
        assert "out" in str(error.where["operator"])
        process(engine, stocked, topology(str.upper))
        assert stocked.table("out") == {"a": "X", "b": "YY"}
