"""Where rows go whose keys no serde is known of: equal keys to one place, in every process, and others to others."""

from __future__ import annotations

import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from crossstream.serdes.internal import pickled
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.algebra.hashing import hash_keys, partition_of
from crossstream.algebra.values import Values
from crossstream.engine.key_places import placing_bytes


def places(*keys: Any) -> list[bytes | None]:
    found: list[bytes | None] = placing_bytes(Values(objects=list(keys)), pickled()).to_pylist()
    return found


class Size(int, enum.Enum):
    ONE = 1


class Count(enum.IntEnum):
    ONE = 1


class Name(str, enum.Enum):
    K = "k"


class Day(dt.date, enum.Enum):
    FIRST = 2026, 1, 1


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796  # an alias
    BLUE = 2


@dataclass(frozen=True)
class Place:
    street: str
    number: float
    seen: int = field(default=0, compare=False)


@dataclass(frozen=True, eq=False)
class Corner(Place):
    """Compared as a place is."""

    other: str = ""


@dataclass(frozen=True)
class Caseless:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caseless) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float


class Rounded(msgspec.Struct, frozen=True):
    x: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounded) and round(self.x) == round(other.x)


NOON = dt.datetime(2026, 3, 1, 12)
UTC, BERLIN = dt.timezone.utc, ZoneInfo("Europe/Berlin")
TWICE = dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (1, Decimal("1.0")),
        (1, Size.ONE),
        (1, Count.ONE),
        (0.0, -0.0),
        ("k", Name.K),
        (b"k", bytearray(b"k")),
        (("k", 1), ("k", 1.0)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1, "b": 2}, OrderedDict({"b": 2.0, "a": True})),
        ({"a": 1}, MappingProxyType({"a": 1})),
        (Counter(a=1, b=0), Counter(a=1)),
        (frozenset("abc"), frozenset("cab")),
        (uuid.UUID(int=7), uuid.UUID(hex=f"{7:032x}")),
        (NOON, NOON.replace(fold=1)),
        (NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC).astimezone(BERLIN)),
        (TWICE, TWICE.replace(fold=1)),
        (dt.date(2026, 1, 1), Day.FIRST),
        (dt.time(12, tzinfo=UTC), dt.time(14, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        (dt.timedelta(hours=1), dt.timedelta(minutes=60)),
        (Color.RED, Color.CRIMSON),
        (Place("x", 1, seen=3), Place("x", 1.0, seen=4)),
        (Corner("x", 1, other="a"), Corner("x", 1, other="b")),
        (Caseless("a"), Caseless("A")),
        (Point(1, 2), Point(1.0, 2.0)),
        (Rounded(1.1), Rounded(0.9)),
    ],
    ids=str,
)
def test_equal_keys_have_one_place(one: Any, other: Any) -> None:
    assert one == other
    first, second = places(one, other)
    assert first == second


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([0.5, -0.0, 1.0, 2.0]),
    st.sampled_from([Decimal("0.5"), Decimal("1.00"), Fraction(1, 2), 1 + 0j]),
)
ZONES = st.sampled_from(
    [None, UTC, BERLIN, ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(hours=1, microseconds=7))]
)
MOMENTS = st.builds(
    lambda hours, zone, fold: (dt.datetime(2026, 10, 24, tzinfo=zone) + dt.timedelta(hours=hours)).replace(
        fold=fold
    ),
    st.integers(0, 50),
    ZONES,
    st.sampled_from([0, 1]),
)
LEAVES = st.one_of(
    NUMBERS,
    MOMENTS,
    MOMENTS.map(dt.datetime.timetz),
    MOMENTS.map(dt.datetime.date),
    st.sampled_from(["a", "1", Name.K, "k", Color.RED, Color.BLUE, Size.ONE, None, b"a", b""]),
    st.builds(uuid.UUID, int=st.integers(0, 2)),
)
KEYS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["a", "b", 1, 1.5]), inner, max_size=2),
        st.builds(Place, inner, inner, st.integers(0, 1)),
        st.builds(Point, inner, inner),
    ),
    max_leaves=4,
)


@given(keys=st.lists(KEYS, min_size=2, max_size=12))
@example(keys=[TWICE, TWICE.replace(fold=1)])
@example(keys=[{"a": 0}, Counter(), Counter(a=0)])
def test_whatever_is_equal_is_together(keys: list[Any]) -> None:
    found = places(*keys)
    for one, at in zip(keys, found, strict=True):
        assert all(at == there for other, there in zip(keys, found, strict=True) if one == other)


NOT_A_NUMBER = [float("nan"), -float("nan"), Decimal("NaN"), Decimal("sNaN"), complex(0, float("nan"))]


def test_what_is_not_a_number_has_one_place() -> None:
    assert len(set(places(*NOT_A_NUMBER))) == 1
    assert len(set(places(*[("a", number) for number in NOT_A_NUMBER]))) == 1


def test_keys_without_a_place_of_their_own() -> None:
    odd = [None, "\ud800", object(), Caseless("a")]
    assert places(*odd)[2:] == [b"", b""]
    assert places(*odd).count(None) == 1


MAKERS: dict[str, Callable[[int], Any]] = {
    "uuid": lambda n: uuid.UUID(int=n),
    "datetime": lambda n: NOON + dt.timedelta(seconds=n),
    "aware": lambda n: NOON.replace(tzinfo=BERLIN) + dt.timedelta(seconds=n),
    "date": lambda n: dt.date.fromordinal(700_000 + n),
    "time": lambda n: dt.time(0, n // 60, n % 60),
    "timedelta": lambda n: dt.timedelta(seconds=n),
    "enum": enum.Enum("Many", [f"E{n}" for n in range(400)]),
    "dict": lambda n: {"n": n + 1, "a": "x"},
    "dataclass": lambda n: Place("x", n),
    "struct": lambda n: Point(n, 0),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_keys_are_spread_over_the_partitions(kind: str) -> None:
    made = [MAKERS[kind](n + 1) for n in range(400)]
    pids = partition_of(hash_keys(placing_bytes(Values(objects=made), pickled()), 64), 4)
    assert min(Counter(pids.tolist()).get(pid, 0) for pid in range(4)) > 60


def test_they_have_these_places_in_every_process() -> None:
    code = (
        "from tests.unit.test_key_places import MAKERS, places\n"
        "print(places(*[make(n) for make in MAKERS.values() for n in (1, 2)]))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{places(*[make(n) for make in MAKERS.values() for n in (1, 2)])}\n"}
