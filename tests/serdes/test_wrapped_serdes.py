"""A serde of one's own is wrapped where it is given; it is equal to what was given, and may say more than `Serde`."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph.nodes import Process
from crossstream.serdes import calls
from crossstream.serdes.contract import ANY_READER
from crossstream.serdes.own import OwnSerde, alike, known
from tests.pairs import Pair, bent

TEXT = serdes.string()


@dataclass(frozen=True)
class Talkative(Pair):
    """Answers every question that the engine has."""

    name: str = "talkative"
    topic: str = ""
    varied = True
    unfit_for_keys = "two words may be swapped"
    classes = (Pair,)
    some_columns = pl.Struct({"left": pl.String})

    def read_from(self, topic: str, is_key: bool) -> Talkative:
        return Talkative(topic=f"from {topic}")

    def written_to(self, topic: str, is_key: bool) -> Talkative:
        return Talkative(topic=f"to {topic}")

    def decode_checked(self, data: pa.LargeBinaryArray, fields: Any, readers: Any) -> pl.Series:
        return pl.Series([f"{sorted(fields)} {row.decode()}" for row in data.to_pylist()])

    def nulls(self, data: pa.LargeBinaryArray) -> list[bool]:
        return [row == b"-" for row in data.to_pylist()]


class Same:
    """Has no ``__eq__``: two of a name count as the same."""

    name, dtype, deserialize = "same", None, None

    def serialize(self, value: Any) -> bytes:
        return b""


ROWS = pa.array([b"a,b", b"-"], pa.large_binary())


@pytest.mark.parametrize(
    "option",
    [
        cs.Consumed,
        cs.Produced,
        cs.Materialized,
        cs.Grouped,
        cs.Repartitioned,
        cs.StreamJoined,
        cs.Joined,
        partial(cs.KeyValueStore, "seen", key=str),
        partial(cs.WindowStore, "recent", key=str, retention="1 hour"),
    ],
)
def test_an_option_gives_back_what_was_given(option: Any) -> None:
    own = Talkative()
    assert option(value=own).value is own


def test_nodes_and_stores_have_it_wrapped() -> None:
    own, builder = Pair(), cs.StreamsBuilder()
    builder.table("byOption", cs.Consumed(value=own), cs.Materialized(store="rows"))
    builder.stream("byKeyword", value=own).process(Pair, cs.KeyValueStore("seen", key=own, value=own)).to(
        "out", cs.Produced(key=own, value=own)
    )
    builder.stream("grouped", key=str).group_by_key(value=own).reduce(
        lambda value, other: value, materialized=cs.Materialized(value=own)
    )
    topology = builder.build()
    serdes_of = [serde for node in topology for serde in (node.key, node.value) if serde == own]
    serdes_of += [node.store.value for node in topology if node.store is not None]
    serdes_of += [
        serde
        for node in topology.each(Process)
        for store in node.stores
        for serde in (store.key, store.value)
    ]
    assert len(serdes_of) >= 8
    assert {type(serde) for serde in serdes_of} == {OwnSerde}


def test_a_wrapped_serde_is_equal_to_what_was_given() -> None:
    serde = known(Talkative())
    assert serde == Talkative()
    assert Talkative() == serde
    assert serde != Talkative(topic="another")
    assert hash(serde) == hash(Talkative())
    assert repr(serde) == repr(Talkative())
    assert serde.topic == ""  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Talkative' object has no attribute 'tpoic'"):
        _ = serde.tpoic  # type: ignore[attr-defined]


def test_a_serde_is_wrapped_once() -> None:
    wrapped = known(Pair())
    assert cs.Produced(value=wrapped).value is wrapped
    assert known(wrapped) is wrapped
    assert known(TEXT) is TEXT


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_wrapped_serde_reaches_the_workers(dumps: Any) -> None:
    again = pickle.loads(dumps(serdes.left_or_right(Talkative(topic="t"), TEXT)))
    assert again == serdes.left_or_right(Talkative(topic="t"), TEXT)
    assert again.left.topic == "t"


def test_it_may_say_more_than_it_has_to() -> None:
    serde = known(Talkative())
    assert serde.varied
    assert serde.unfit_for_keys == "two words may be swapped"
    assert serde.classes == (Pair,)
    assert serde.columns == Talkative().dtype
    assert known(Talkative(dtype=None)).columns == pl.Struct({"left": pl.String})
    assert serde.knows_topics
    assert serde.read_from("in", False) == Talkative(topic="from in")
    assert serde.written_to("out", False) == Talkative(topic="to out")
    checked = calls.decode_checked(serde, ROWS, ["b", "a"], ANY_READER)
    assert checked.to_list() == ["['a', 'b'] a,b", "['a', 'b'] -"]
    assert calls.nulls(serde, ROWS) == [False, True]
    with pytest.raises(cs.SerdeError, match=r"CS-404.*two words may be swapped"):
        cs.Consumed(key=Talkative())


def test_it_need_not() -> None:
    serde = known(Pair())
    assert not serde.varied
    assert serde.unfit_for_keys is None
    assert serde.columns == Pair().dtype
    assert not serde.knows_topics
    assert serde.read_from("in", True) is serde
    assert serde.written_to("out", True) is serde
    rows = pa.array([b"a,b", None], pa.large_binary())
    assert calls.nulls(serde, rows) == [False, True]
    assert calls.decode_checked(known(bent()), rows, ["x"], ANY_READER).to_list() == [["a", "b"], None]


def test_equal_ones_are_alike() -> None:
    assert alike(known(Pair()), Pair())
    assert not alike(known(Pair()), bent(serialize=bytes))
    one, other = known(Same()), known(Same())  # type: ignore[arg-type]
    assert one != other
    assert alike(one, other)
    assert alike(serdes.windowed(one, 60_000), serdes.windowed(other, 60_000))


@pytest.mark.parametrize(("method", "call"), [
    ("serialize", lambda serde: calls.serialize(serde, (["a", "b"], None))),
    ("decode_objects", lambda serde: calls.decode_objects(serde, pa.array([b"\0a,b"], pa.large_binary()))),
    ("decode_series", lambda serde: calls.decode_series(serde, pa.array([b"\0a,b"], pa.large_binary()))),
])  # fmt: skip
def test_what_it_gives_is_checked_inside_another_serde(method: str, call: Any) -> None:
    with pytest.raises(cs.SerdeError, match=f"{method} of serde pair gave a int") as caught:
        call(serdes.left_or_right(bent(**{method: lambda answer: 5}), TEXT))
    assert caught.value.code == "CS-412"


class Lending:
    """A serde that gives its own columns, and else has what one of ours has."""

    dtype = pl.Int128()

    def __init__(self) -> None:
        self.serde = serdes.int64()

    def __getattr__(self, name: str) -> Any:
        if name == "serde" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.serde, name)

    def decode_series(self, data: Any, fields: Any = None) -> pl.Series:
        return self.serde.decode_series(data, fields).cast(pl.Int128)


def test_a_serde_that_is_around_one_of_ours_is_asked_itself() -> None:
    """Defaults that ours would lend it, such as what it is bound to a topic, are not its own."""
    wrapped = known(Lending())
    assert not wrapped.knows_topics
    assert wrapped.read_from("topic", is_key=False) is wrapped
    data = pa.array([serdes.int64().serialize(7)], pa.large_binary())
    assert wrapped.decode_checked(data, frozenset()).dtype == pl.Int128
    assert wrapped.decode_series(data).to_list() == [7]
