"""Which branch of a union a value is written as."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import SerdeError, serdes

WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
NARROW = {
    "type": "fixed",
    "name": "Narrow",
    "size": 4,
    "logicalType": "decimal",
    "precision": 4,
    "scale": 2,
}
ID = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
DAY, TIME = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}
LARGE = Decimal("9007199254740993.25")


@pytest.mark.parametrize(
    ("branches", "value", "read"),
    [
        (["double", WIDE], LARGE, LARGE),
        ([WIDE, "double"], LARGE, LARGE),
        (["double", WIDE, "null"], 0.5, 0.5),
        ([WIDE, "double", "null"], 0.5, 0.5),
        (["double", WIDE], 2**53 + 1, Decimal(2**53 + 1)),
        (["double", WIDE], 7, 7.0),
        (["null", NARROW, WIDE, "double"], Decimal("12.34"), Decimal("12.34")),
        (["null", NARROW, WIDE, "double"], Decimal("1234.5"), Decimal("1234.5")),
        (["null", NARROW, "double"], Decimal("0.125"), 0.125),
        (["float", "double"], 0.1, 0.1),
        (["double", "int", "string"], 7, 7),
        (["boolean", "int"], True, True),
        (["string", ID], UUID(int=7), UUID(int=7)),
        (["string", DAY, TIME], date(2026, 1, 2), date(2026, 1, 2)),
        (
            [DAY, "string", TIME],
            datetime(2026, 1, 2, tzinfo=timezone.utc),
            datetime(2026, 1, 2, tzinfo=timezone.utc),
        ),
        ([NARROW, "bytes"], b"abcd", b"abcd"),
    ],
)
def test_a_value_takes_the_branch_of_its_type(branches: Any, value: Any, read: Any) -> None:
    serde = serdes.avro(branches)
    found = serde.deserialize(serde.serialize(value))
    assert (type(found), found) == (type(read), read)
    assert serde.decode_objects(serde.encode_objects([value, value])) == [read, read]


@pytest.mark.parametrize(
    ("branches", "value"),
    [(["double", "string"], LARGE), (["double", "string"], 2**53 + 1), ([NARROW, "double", "string"], LARGE)],
)
def test_a_number_that_no_branch_holds_is_refused(branches: Any, value: Any) -> None:
    with pytest.raises(SerdeError, match=r"^\[CS-401\]"):
        serdes.avro(branches).serialize(value)


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.integers(-(10**30), 10**30).map(lambda number: Decimal(number).scaleb(-2)),
    st.none(),
)


@given(st.permutations(["null", "long", "double", WIDE, NARROW]), st.lists(NUMBERS, max_size=5))
def test_no_number_changes(branches: Any, values: list[Any]) -> None:
    serde = serdes.avro({"type": "record", "name": "Row", "fields": [{"name": "n", "type": branches}]})
    rows = [{"n": value} for value in values]
    found = serde.decode_objects(serde.encode_objects(rows))
    assert found == rows
    for row, value in zip(found, values, strict=True):
        assert type(value) is int or type(row["n"]) is type(value)
