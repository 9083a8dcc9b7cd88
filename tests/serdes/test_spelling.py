"""The law of keys: equal values of a declared type have one JSON, in whatever order their parts were put in.

Types for which that does not hold are refused as keys.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import random
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import SerdeError, serdes
from tests.laws.effort import cases

NUMBERS = st.sets(st.integers(-(2**70), 2**70), max_size=5)
WORDS = st.sets(st.text(max_size=3), max_size=5)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Named(TypedDict, total=False):
    zone: int
    area: str
    tags: set[str]


class Wider(Named):
    first: str
    inner: Named | None


class Pair(NamedTuple):
    id: int
    tags: frozenset[str]


class Short(msgspec.Struct, omit_defaults=True):
    area: str = "eu"


class Numbered(msgspec.Struct, omit_defaults=True, array_like=True):
    """Arrays have all fields."""

    area: str = "eu"


@dataclasses.dataclass(frozen=True)
class Kept:
    tags: frozenset[str]
    id: int = 0


class Tree(msgspec.Struct, frozen=True):
    tags: frozenset[str]
    below: tuple[Tree, ...] = ()


class Chained(TypedDict):
    zone: int
    area: str
    next: Chained | None


@dataclasses.dataclass(frozen=True)
class Category:
    tags: frozenset[str]
    parent: Category | None = None


class Left(msgspec.Struct, frozen=True, tag="l"):
    tags: frozenset[str]


class Right(msgspec.Struct, frozen=True, tag="r"):
    tags: list[str]


class Row(msgspec.Struct, frozen=True, tag="row", array_like=True):
    id: int
    tags: frozenset[str]


NAMED = st.fixed_dictionaries(
    {}, optional={"zone": st.integers(0, 9), "area": st.text(max_size=2), "tags": WORDS}
)
SMALL = st.frozensets(st.text(max_size=3), max_size=5)
TREES = st.recursive(
    st.builds(Tree, SMALL),
    lambda inner: st.builds(Tree, SMALL, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=4,
)
NAMES = st.fixed_dictionaries({"zone": st.integers(0, 9), "area": st.text(max_size=2)})
CHAINS = st.recursive(
    NAMES.map(lambda one: {**one, "next": None}),
    lambda inner: st.builds(lambda one, following: {**one, "next": following}, NAMES, inner),
    max_leaves=4,
)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "numbers": (set[int], NUMBERS),
    "floats": (frozenset[float], st.frozensets(st.floats(allow_nan=False, allow_infinity=False))),
    "numbers or text": (
        frozenset[int | str | None],
        st.frozensets(st.integers() | st.text(max_size=2) | st.none()),
    ),
    "enums": (set[Colour], st.sets(st.sampled_from(Colour))),
    "sets of sets": (frozenset[frozenset[str]], st.frozensets(SMALL, max_size=4)),
    "sets of records": (set[Kept], st.sets(st.builds(Kept, SMALL, st.integers(0, 3)), max_size=4)),
    "typed dict": (Named, NAMED),
    "typed dicts in one": (
        Wider,
        st.tuples(NAMED, st.text(max_size=2), NAMED | st.none()).map(
            lambda parts: {**parts[0], "first": parts[1], "inner": parts[2]}
        ),
    ),
    "by name": (dict[str, Named | None], st.dictionaries(st.text(max_size=2), NAMED | st.none(), max_size=3)),
    "in a tuple": (tuple[int, set[str]], st.tuples(st.integers(0, 9), WORDS)),
    "named tuple": (Pair, st.builds(Pair, st.integers(0, 9), SMALL)),
    "with a limit": (Annotated[set[str], msgspec.Meta(max_length=9)], WORDS),
    "tree": (Tree, TREES),
    "typed dict in itself": (Chained, CHAINS),
    "class in itself": (
        Category,
        st.recursive(
            st.builds(Category, SMALL), lambda inner: st.builds(Category, SMALL, inner), max_leaves=4
        ),
    ),
    "one of several": (
        list[Left | Right | int],
        st.lists(
            st.builds(Left, SMALL) | st.builds(Right, st.lists(st.text(max_size=2))) | st.integers(0, 9)
        ),
    ),
    "array or object": (Pair | Named, st.builds(Pair, st.integers(0, 9), SMALL) | NAMED),
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data(), seed=st.integers(0, 99))
@cases(0.5)
def test_one_json(name: str, data: st.DataObject, seed: int) -> None:
    kind, values = KINDS[name]
    check(kind, [*data.draw(st.lists(values, min_size=1, max_size=20))], seed)


@given(numbers=NUMBERS, seed=st.integers(0, 99))
@example(numbers={0, 8}, seed=0)
@cases(0.2)
def test_one_json_of_a_set(numbers: set[int], seed: int) -> None:
    check(set[int], [numbers], seed)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Short, "omit_defaults"),
        (list[Short | None], "omit_defaults"),
        (Numbered, None),
        (Chained, "TypedDict"),
        (dict[str, Named], "TypedDict"),
        (Named, None),
        (set[Colour], "cannot be sorted"),
        (tuple[int, frozenset[str]], None),
        (frozenset[frozenset[str]], "cannot be sorted"),
    ],
)
def test_types_that_cannot_be_keys(kind: Any, reason: str | None) -> None:
    serde = serdes.json(kind)
    assert cs.Consumed(value=serde).value == serde
    if reason is None:
        assert cs.Consumed(key=serde).key == serde
        return
    for option in (cs.Consumed, cs.Produced, cs.Materialized, cs.Repartitioned, cs.StreamJoined, cs.Joined):
        with pytest.raises(SerdeError, match=reason) as caught:
            option(key=serde)
        with pytest.raises(SerdeError, match=reason):
            option(key=serdes.left_or_right(serdes.string(), serde))
        assert caught.value.code == "CS-404"


def test_an_object_that_is_not_what_its_class_says() -> None:
    """It is refused as one that cannot be read again, not for what its spelling stumbles on."""
    wrong: Any = None
    for values in ([Kept(wrong)], [Kept(frozenset("abc")), Kept(wrong)]):
        with pytest.raises(SerdeError, match=r"CS-401(.|\n)*\$\.tags"):
            serdes.json(Kept).encode_objects(values)


@pytest.mark.parametrize("tags", ["abc", "cba", "bca"])
def test_structs_that_are_arrays(tags: str) -> None:
    serde = serdes.json(Row | int)
    assert serde.serialize(
        serde.deserialize(b'["row",7,["%s","%s","%s"]]' % tuple(c.encode() for c in tags))
    ) == (b'["row",7,["a","b","c"]]')


def check(kind: Any, values: list[Any], seed: int) -> None:
    serde = serdes.json(kind)
    written = [serde.serialize(value) for value in values]
    assert serde.encode_objects(values).to_pylist() == written
    assert serde.decode_objects(serde.encode_objects(values)) == values
    for value, text in zip(values, written, strict=True):
        if serde.unfit_for_keys:  # type: ignore[attr-defined]
            return
        assert text is not None
        other = serde.deserialize(json.dumps(shuffled(msgspec.to_builtins(value), kind, seed)).encode())
        if other == value:  # a list in another order is another value
            assert serde.serialize(other) == text


def shuffled(plain: Any, kind: Any, seed: int) -> Any:
    """Items of dicts in another order, and those of lists, as which sets are written."""
    chance = random.Random(seed)
    if isinstance(plain, dict):
        items = [(name, shuffled(value, kind, seed)) for name, value in plain.items()]
        return dict(items) if kind in BY_NAME else dict(chance.sample(items, len(items)))
    if isinstance(plain, tuple):
        return [shuffled(item, kind, seed) for item in plain]
    if isinstance(plain, list):
        return chance.sample([shuffled(item, kind, seed) for item in plain], len(plain))
    return plain


BY_NAME = (KINDS["by name"][0],)
"""The order of plain dicts is their own."""
