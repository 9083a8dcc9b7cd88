"""Typed JSON of which only some fields are wanted as columns, while a bad one is found in any."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calls import bisected, find_invalid
from tests.serdes.rows import plain, unhurried


class Sale(msgspec.Struct):
    id: int
    item: str
    price: float
    paid: bool = False
    total: Decimal = Decimal(1)
    at: dt.datetime | None = None
    note: str | None = None


SCHEMA = pl.Struct({"id": pl.Int64, "small": pl.Int8, "big": pl.UInt64, "item": pl.String})
NAMES = ("id", "item", "price", "paid", "total", "at", "note", "small", "big", "nobody's")
ROWS = (
    b'{"id":1,"item":"a","price":1.5,"big":7}',
    b'{"id":2,"item":"\xc3\xa9","price":2,"paid":true,"total":"2.5","note":null,"small":-3}',
    None,
    b'{"id":3,"item":"","price":0,"at":"2024-05-01T12:00:00Z","note":"x"}',
    b'{"id":"4","item":"b","price":1}',
    b'{"id":5,"price":1}',
    b'{"id":6,"item":7,"price":"1"}',
    b'{"id":9223372036854775808,"item":"c","price":1}',
    b'{"id":8,"item":"d","price":1,"total":"1e99"}',
    b'{"id":9,"item":"e","price":1,"at":"2024-05-01T12:00:00"}',
    b'{"id":10,"item":"f","price":1,"small":200}',
    b'{"id":11,"item":"g","price":1,"big":18446744073709551616}',
    b'{"id":12,"item":"\\ud800","price":1}',
    b'{"id":13,',
)
GOOD = ROWS[:4]


@pytest.mark.parametrize("serde", [serdes.json(Sale), serdes.json(SCHEMA)], ids=["type", "schema"])
@unhurried
@given(
    rows=st.lists(st.sampled_from(GOOD), max_size=6),
    bad=st.lists(st.sampled_from(ROWS), max_size=2),
    names=st.sets(st.sampled_from(NAMES)),
    copies=st.sampled_from([1, 40]),
)
def test_what_is_refused_and_what_is_made(
    serde: Any, rows: list[bytes | None], bad: list[bytes | None], names: set[str], copies: int
) -> None:
    data = plain((rows + bad) * copies)
    known = names.intersection(field.name for field in serde.dtype.fields)
    refused = [at for at, row in enumerate(data.to_pylist()) if is_refused(serde, row, known)]
    assert [at for at, _ in bisected(lambda part: serde.decode_checked(part, names), data)] == refused
    if refused:
        with pytest.raises(SerdeError, match="CS-402"):
            serde.decode_checked(data, names)
    else:
        made, whole = serde.decode_checked(data, names), serde.decode_series(data, known)
        assert all(made.struct.field(name).equals(whole.struct.field(name)) for name in known)
        assert made.is_null().equals(whole.is_null())


def is_refused(serde: Any, row: bytes | None, fields: set[str]) -> bool:
    """By Python functions; or by the columns of these fields. Half of a surrogate pair only where it is read."""
    whole = row if row is None or "item" in fields else row.replace(b"\\ud800", b"x")
    try:
        serde.decode_objects(plain([whole]))
        serde.decode_series(plain([row]), fields)
    except SerdeError:
        return True
    return False


def test_rows_are_decoded_in_chunks() -> None:
    rows = [None if n % 7 == 0 else b'{"id":%d,"item":"i%d","price":%d}' % (n, n, n) for n in range(20_000)]
    serde = serdes.json(Sale)
    series = serde.decode_series(plain(rows), ["item", "id"])
    assert series.to_list() == [None if n % 7 == 0 else {"id": n, "item": f"i{n}"} for n in range(20_000)]
    assert series.n_chunks() == 1
    rows[17_000] = b'{"id":0}'
    with pytest.raises(SerdeError, match="CS-402"):
        serde.decode_series(plain(rows))
    assert [row for row, _ in find_invalid(serde, plain(rows))] == [17_000]
