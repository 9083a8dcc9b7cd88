r"""The law of bad JSON: whatever a record is, it is read, or refused with CS-402; it alone, and beside any others.

Numbers of any size, objects in one another, names that occur twice, halves of surrogate pairs (``"\ud83d"``), NUL, the
byte order mark, and bytes that are no UTF-8.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.serdes.calls import bisected
from tests.laws.effort import cases


class Colour(enum.Enum):
    RED = "a"
    BLUE = "b"


class Lenient(enum.Enum):
    A = "a"
    OTHER = "x"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.OTHER


class Place(NamedTuple):
    a: int
    b: str = ""


class Part(TypedDict, total=False):
    a: int | None
    b: list[str]


@dataclasses.dataclass
class Inner:
    a: int = 0
    b: str | None = None


@dataclasses.dataclass
class Outer:
    a: int | None = None
    b: str | None = None
    c: Inner | None = None
    d: list[Inner] = dataclasses.field(default_factory=list)
    n: float | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: Annotated[int, msgspec.Meta(ge=0)] = 0
    b: Annotated[str, msgspec.Meta(max_length=3)] = ""
    n: float = 0.0


class Times(msgspec.Struct, omit_defaults=True):
    a: dt.datetime | None = None
    b: dt.time | None = None
    c: dt.timedelta | None = None
    d: list[dt.date] = []
    n: Decimal | None = None


class Tree(msgspec.Struct):
    a: Tree | None = None
    d: list[Tree] = []
    b: str | None = None


@dataclasses.dataclass
class Made:
    a: int = 0
    b: str = ""
    c: Lenient = Lenient.A

    def __post_init__(self) -> None:
        if self.b == "a":
            raise KeyError(self.b)


class Odd(msgspec.Struct, tag="x", tag_field="b"):
    a: UUID | None = None
    c: bytes | None = None
    d: list[Colour | None] = []
    n: Literal["a", "b"] | Literal[1] | None = None  # msgspec before 0.22 cannot describe one of both


class Loose(msgspec.Struct):
    a: int = 0
    b: dict[str, Any] | None = None
    c: Any = None
    d: set[str] | None = None


SCHEMA = {
    "a": pl.UInt64,
    "b": pl.String,
    "c": pl.Struct({"a": pl.Int64, "b": pl.Binary}),
    "d": pl.List(pl.List(pl.Decimal(10, 2))),
    "n": pl.Float32,
}
MOMENTS = {
    "a": pl.Datetime("us", "UTC"),
    "b": pl.Datetime("ms"),
    "c": pl.Duration("us"),
    "d": pl.List(pl.Time),
    "n": pl.Date,
}
TYPES: dict[str, Any] = {
    "dataclass": Outer,
    "strict": Strict,
    "times": Times,
    "tree": Tree,
    "made": Made,
    "odd": Odd,
    "loose": Loose,
    "typed dict": Part,
    "named tuple": Place,
    "list of classes": list[Inner],
    "lists": list[list[float | None]],
    "dict": dict[str, int],
    "dict of numbers": dict[int, float],
    "int": int,
    "float": float,
    "text": str,
    "bool": bool,
    "enum": Colour,
    "decimal": Decimal,
    "duration": dt.timedelta,
    "union": int | str | None,
    "schema": SCHEMA,
    "moments": MOMENTS,
    "untyped": None,
}

LEAVES = st.sampled_from(
    [
        b"null true false 0 -0 1 -1 1.5 2.0 1e5 9223372036854775807 9223372036854775808 -9223372036854775809",
        b"18446744073709551615 18446744073709551616 1e400 -1e400 1e-400 1e999999999 3.4028236e38",
        b'"1e999999999" "NaN" "-Infinity" NaN Infinity -Infinity 1e 01 .5 + "a" "b" "x" "abcd" "" "1.5" "1E+40"',
        rb'"\ud83d" "a\ude00b" "\ud83d\ude00" "\ud83d\u0041" "\\ud83d" "\u0000" "\ufffd" "\ufffe" "\q" "\u12" "\ud83d',
        b'"\0" "\x01" "\xff" "\xed\xa0\xbd" "\xc3\xa9" "\xef\xbb\xbf" "\xf4\x90\x80\x80" tru [] {} ] } , :',
        b'"2024-05-01T12:00:00Z" "2024-05-01T12:00:00" "0001-01-01T00:00:00+14:00" "9999-12-31T23:59:59-14:00"',
        b'"2024-05-01" "12:00:00" "12:00:00Z" "P1D" "P999999999D" "-P999999999D" "PT1E400S" "P9e99999D" "aGk=" "a"',
        b'"00000000-0000-0000-0000-000000000007" "0000-02-30" "24:00:00" 1714564800 1e18',
    ]
).flatmap(lambda texts: st.sampled_from(texts.split(b" ")))
DIGITS = st.integers(1, 6000).map(lambda count: b"7" * count)
NAMES = st.sampled_from(
    [b'"a"', b'"b"', b'"c"', b'"d"', b'"n"', rb'"\u0061"', rb'"\ud83d"', b'"\xff"', b'""', b"a"]
)


def listed(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def object_of(fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b",".join(name + b":" + value for name, value in fields) + b"}"


VALUES = st.recursive(
    LEAVES | DIGITS,
    lambda inner: (
        st.lists(inner, max_size=3).map(listed) | st.lists(st.tuples(NAMES, inner), max_size=5).map(object_of)
    ),
    max_leaves=8,
)
DEEP = st.builds(
    lambda text, levels, opening: opening * levels + text + (b"]" if opening == b"[" else b"}") * levels,
    LEAVES,
    st.sampled_from([33, 150, 900, 1100, 5000, 100_000]),
    st.sampled_from([b"[", b'{"a":', b'{"zz":']),
)
FRAMED = st.builds(
    lambda before, text, after: before + text + after,
    st.sampled_from([b"", b"", b"", b" ", b"\xef\xbb\xbf", b"\0", b"\n"]),
    VALUES
    | DEEP
    | VALUES.map(lambda text: b'{"zz":' + text + b',"a":1}')
    | DEEP.map(lambda text: b'{"d":' + text),
    st.sampled_from([b"", b"", b"", b" ", b"\0", b"}", b"\n{}"]),
)
ROWS = st.lists(st.none() | FRAMED | st.binary(max_size=4), max_size=6)
GOOD = {
    "list of classes": b'[{"a":1}]',
    "lists": b"[[1.5]]",
    "named tuple": b'[1,"x"]',
    "int": b"7",
    "float": b"7",
    "text": b'"x"',
    "bool": b"true",
    "enum": b'"a"',
    "decimal": b'"1.5"',
    "duration": b'"P1D"',
    "union": b"7",
    "odd": b'{"b":"x"}',
}


def column(rows: list[bytes | None]) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


def is_refused(decode: Callable[[pa.LargeBinaryArray], Any], row: bytes | None) -> bool:
    """Whether the row alone is refused as undecodable. Anything else that is raised is a failure of the law."""
    return bool(bisected(decode, column([row])))


@pytest.mark.parametrize("name", TYPES)
@given(rows=ROWS, copies=st.sampled_from([1, 30]))
@example(
    rows=[rb'{"zz":"\ud83d","a":1}', rb'{"b":"\ud83d"}', rb'{"\ud83d":1}', rb'["\ud83d"]', rb'"\ud83d"'],
    copies=30,
)
@example(rows=[b'{"a":9223372036854775808}', b'{"a":18446744073709551616}', b'{"a":1e400}'], copies=1)
@example(rows=[b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 100_000 + b"]" * 100_000], copies=1)
@cases(0.3)
def test_a_record_is_read_or_refused(name: str, rows: list[bytes | None], copies: int) -> None:
    serde: Any = serdes.json(TYPES[name])
    rows = [GOOD.get(name, b"{}"), *rows] * copies
    ways: list[Callable[[pa.LargeBinaryArray], Any]] = [serde.decode_objects]
    if serde.dtype is not None:
        ways.append(serde.decode_series)
    if isinstance(serde.dtype, pl.Struct):
        ways += [
            lambda data: serde.decode_checked(data, ["b"]),
            lambda data: serde.decode_series(data, ["b"]),
        ]
    for decode in ways:
        refused = {row: is_refused(decode, row) for row in set(rows)}
        bad = [at for at, row in enumerate(rows) if refused[row]]
        found = bisected(decode, column(rows))
        assert [at for at, _ in found] == bad
        assert all(reason for _, reason in found)
        assert len(decode(column([row for row in rows if not refused[row]]))) == len(rows) - len(bad)
    for row in set(rows):
        assert is_refused(serde.decode_objects, row) == is_refused(
            lambda data: [serde.deserialize(data[0].as_py())], row
        )


@dataclasses.dataclass
class Chain:
    a: int = 0
    c: Chain | None = None


def test_a_chain_of_any_length() -> None:
    """Of some lengths msgspec decodes what Python cannot walk along."""
    serde = serdes.json(Chain)
    chains = [b'{"c":' * length + b"null" + b"}" * length for length in range(900, 1010)]
    refused = [is_refused(serde.decode_objects, row) for row in chains]
    assert sorted(refused) == refused
    assert set(refused) == {False, True}
