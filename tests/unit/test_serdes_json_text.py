"""The JSON of columns: the same bytes for few rows and for many, and none for times that Python does not have."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calendar import beyond
from tests.unit.serdes_rows import unhurried

JSON = serdes.json()
NOON = dt.datetime(2024, 5, 1, 12)

whens = st.none() | st.datetimes() | st.datetimes().map(lambda when: when.replace(microsecond=500_000))
TEXTS = {
    pl.Float64: st.none() | st.floats() | st.sampled_from([1e16, -1e16, 1e15, 1e-7]),
    pl.Float32: st.none() | st.floats(width=32),
    pl.Datetime("us"): whens,
    pl.Datetime("ms"): whens,
    pl.Datetime("us", "UTC"): whens,
    pl.Date: st.none() | st.dates(),
    pl.Time: st.none() | st.times(),
    pl.Duration("us"): st.none() | st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)),
    pl.Decimal(38, 18): st.none() | st.decimals(-10, 10, places=9),
    pl.List(pl.Float64): st.none() | st.lists(st.none() | st.floats(), max_size=2),
    pl.String: st.none() | st.text(),
    pl.Binary: st.none() | st.binary(),
}


@unhurried
@given(
    st.lists(st.sampled_from(list(TEXTS)), min_size=1, max_size=4).flatmap(
        lambda kinds: st.tuples(
            st.just(kinds), st.lists(st.tuples(*[TEXTS[kind] for kind in kinds]), min_size=1, max_size=5)
        )
    )
)
@example(([pl.Float64], [(1e16,)]))
@example(([pl.Datetime("us")], [(NOON.replace(microsecond=500_000),)]))
def test_many_rows_are_written_as_few_are(given_: tuple[list[Any], list[tuple[Any, ...]]]) -> None:
    """Keys are compared by their bytes."""
    kinds, rows = given_
    columns = {f"f{at}": pl.Series([row[at] for row in rows], dtype=kind) for at, kind in enumerate(kinds)}
    series = pl.DataFrame(columns).to_struct()
    one_by_one = [
        row for at in range(len(rows)) for row in JSON.encode_series(series[at : at + 1]).to_pylist()
    ]
    assert JSON.encode_series(pl.concat([series] * 65)).to_pylist() == one_by_one * 65


FAR = pl.Series([-62_135_596_800_000_001, 253_402_300_800_000_000, 0, None]).cast(pl.Datetime("us", "UTC"))


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    "make", [lambda far: far, lambda far: pl.concat_list(far), lambda far: pl.struct(far)]
)
def test_times_that_python_does_not_have(copies: int, make: Any) -> None:
    series = pl.concat(
        [pl.DataFrame({"far": FAR}).select(pl.struct(when=make(pl.col("far")))).to_series()] * copies
    )
    with pytest.raises(SerdeError, match="before the year 1 or after 9999") as caught:
        JSON.encode_series(series)
    assert caught.value.code == "CS-403"
    assert beyond(series).tolist() == [True, True, False, False] * copies  # type: ignore[union-attr]
