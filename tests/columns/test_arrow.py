"""Columns of Polars in Arrow, and of Arrow in Polars, have the same values, also where they are slices."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

INNER = pl.Struct({"c": pl.String})
STRUCTS = pl.Struct({"a": pl.Int64, "b": INNER, "list": pl.List(INNER), "pair": pl.Array(pl.Int64, 2)})

texts = st.none() | st.text(max_size=20)
inner = st.none() | st.fixed_dictionaries({"c": texts})
structs = st.none() | st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 9),
        "b": inner,
        "list": st.none() | st.lists(inner, max_size=2),
        "pair": st.sampled_from([None, [1, 2]]),
    }
)
EVERY_OTHER = [
    ({"a": row, "b": None if row % 2 else {"c": str(row)}, "list": None, "pair": None}, row == 3)
    for row in range(5)
]


@given(st.lists(st.tuples(structs, st.booleans()), max_size=8), st.integers(0, 8))
@example(EVERY_OTHER, 3)
def test_slices_of_structs_in_arrow(rows: list[tuple[Any, bool]], first: int) -> None:
    """Polars before 1.43 exports them with wrong offsets where a struct in them is null (polars#23214)."""
    series = pl.Series([value for value, _ in rows], dtype=STRUCTS)
    kept = series.filter(pl.Series([keep for _, keep in rows], dtype=pl.Boolean))
    for part in (series[first:], series[first : first + 1], kept):
        for level in (pl.CompatLevel.oldest(), pl.CompatLevel.newest()):
            array = part.to_arrow(compat_level=level)
            array.validate(full=True)
            assert array.to_pylist() == part.to_list()


LISTS = [
    pa.list_(pa.string()),
    pa.large_list(pa.large_string()),
    pa.large_list(pa.large_binary()),
    pa.large_list(pa.struct([("k", pa.large_string())])),
    pa.large_list(pa.large_list(pa.large_string())),
    pa.list_(pa.struct([("k", pa.string())])),
]


@pytest.mark.parametrize("kind", LISTS, ids=str)
@given(st.lists(st.none() | st.lists(texts, max_size=3), max_size=5), st.integers(0, 5))
@example([["a"], ["b" * 20], None, []], 0)
def test_lists_of_arrow(kind: pa.DataType, rows: list[Any], first: int) -> None:
    """Polars before 1.44 misreads a list that is not inside a struct (polars#28626)."""
    array = pa.array([row and [_item(kind.value_type, item) for item in row] for row in rows], kind)[first:]
    assert pl.Series(array).to_list() == array.to_pylist()


def _item(kind: pa.DataType, text: str | None) -> Any:
    if text is None:
        return None
    if pa.types.is_large_binary(kind):
        return text.encode()
    return {"k": text} if pa.types.is_struct(kind) else [text] if pa.types.is_large_list(kind) else text
