"""What a commit changes by key: the same with hashes of keys as without, whatever rows it moves."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.graph.lake import SHARES, LakeTable
from crossstream.lakehouse import netting
from crossstream.lakehouse.netting import Netting
from crossstream.serdes.plain_columns import plain_rows
from tests.laws.effort import law

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.int32())])),
    ]
)
KEYS, COLUMNS = ("id",), ("n", "tags", "at")

row = st.fixed_dictionaries(
    {
        "id": st.integers(0, 8),
        "n": st.none() | st.sampled_from([0.5, 1.5]),
        "tags": st.none() | st.lists(st.none() | st.sampled_from("ab"), max_size=2),
        "at": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 1)}),
    }
)
sides = st.lists(row, max_size=8, unique_by=lambda one: one["id"])


def changes(
    old: list[Any], new: list[Any], shares: range = range(SHARES)
) -> list[tuple[int, dict[str, Any] | None]]:
    table = LakeTable("delta", "orders", SCHEMA, KEYS, COLUMNS)
    rows = plain_rows(SCHEMA, KEYS, COLUMNS, {})
    batches = [[pa.RecordBatch.from_pylist(side, SCHEMA)] if side else [] for side in (old, new)]
    found = Netting(table, rows, frozenset(shares)).changes(3, *batches)
    assert rows.key is not None
    return [(rows.key.deserialize(key), value) for _, key, value in found.rows()]


@given(old=sides, new=sides, collide=st.booleans())
@law
def test_changes_are_the_difference_of_the_rows(old: list[Any], new: list[Any], collide: bool) -> None:
    """``collide``: the same row is in two old files, so that hashes do not suffice."""
    before, after = ({one["id"]: {**one} for one in side} for side in (old, new))
    gone = [(key, None) for key in before if key not in after]
    put = [(key, _value(one)) for key, one in after.items() if before.get(key) != one]
    assert changes([*old, *(old[:1] if collide else [])], new) == gone + put
    assert sorted(
        map(repr, (one for share in range(SHARES) for one in changes(old, new, range(share, share + 1))))
    ) == sorted(map(repr, gone + put))


def _value(one: Any) -> Any:
    return {name: one[name] for name in COLUMNS}


def test_keys_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = netting.hash_keys
    monkeypatch.setattr(netting, "hash_keys", lambda keys: hashes(keys) * 0 + 8)
    one, two = ({"id": key, "n": 0.5, "tags": None, "at": None} for key in (1, 2))
    assert changes([one], [two]) == [(1, None), (2, _value(two))]


def test_two_new_rows_of_a_key() -> None:
    one = {"id": 7, "n": 0.5, "tags": None, "at": None}
    with pytest.raises(cs.CrossStreamError, match="CS-614"):
        changes([], [one, {**one, "n": 1.5}])
