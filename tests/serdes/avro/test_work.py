"""Damaged and hostile payloads take work that is linear in their bytes, and are refused: nothing else is raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream import SerdeError, serdes
from crossstream.serdes.avro import rows as avro_rows
from crossstream.serdes.avro import single as avro_single
from crossstream.serdes.avro.cursor import Cursor
from crossstream.serdes.calls import find_invalid
from tests.serdes.avro.schemas import typed, write

TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "left", "type": ["Tree", "null"]}, {"name": "right", "type": ["Tree", "null"]}],
}
BUSH = {
    "type": "record",
    "name": "Bush",
    "fields": [
        {"name": "twigs", "type": {"type": "array", "items": "Bush"}},
        {"name": "more", "type": ["null", "Bush"]},
        {"name": "named", "type": {"type": "map", "values": ["null", "Bush"]}},
    ],
}


def lists(item: Any, levels: int = 1) -> Any:
    return {"type": "array", "items": lists(item, levels - 1)} if levels else item


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts the numbers that are read, of all payloads at once, one by one, and while items are passed over."""
    steps = [0]

    def counting(call: Any) -> Any:
        def count(*arguments: Any) -> Any:
            steps[0] += 1
            return call(*arguments)

        return count

    with monkeypatch.context() as patch:
        patch.setattr(Cursor, "varint", counting(Cursor.varint))
        patch.setattr(avro_rows, "_long", counting(avro_rows._long))
        patch.setattr(avro_single, "_null", counting(avro_single._null))
        patch.setitem(avro_single._STEPS, "null", avro_single._null)
        yield steps


def code_of(call: Callable[[], object]) -> str | None:
    """The code of the `SerdeError` that is raised, if any is."""
    try:
        call()
    except SerdeError as error:
        return error.code
    return None


def refused_or_read(schema: Any, data: bytes) -> None:
    serde = serdes.avro(schema)
    assert code_of(lambda: serde.deserialize(data)) in (None, "CS-402")
    wire = pa.array([data, data], pa.large_binary())
    expected = (None, "CS-402") if serde.dtype is not None else ("CS-404",)
    assert code_of(lambda: serde.decode_series(wire)) in expected


@given(st.data())
@example(None)
def test_work_is_linear_in_the_bytes(data: Any) -> None:
    if data is None:
        schema, wire = TREE, b""
    else:
        made = data.draw(typed() | st.sampled_from([TREE, BUSH]))
        if isinstance(made, dict):
            schema, wire = made, data.draw(st.binary(max_size=60))
        else:
            schema, wire = made.schema, write(made.schema, data.draw(made.values))
            cut = data.draw(st.integers(0, len(wire)))
            wire = (
                wire[:cut] + data.draw(st.binary(max_size=12)) + data.draw(st.sampled_from([b"", wire[cut:]]))
            )
    with pytest.MonkeyPatch.context() as patch, counted(patch) as steps:
        refused_or_read(schema, wire)
    types = str(schema).count("'type'") + 10
    assert steps[0] <= 20 * types + 40 * len(wire)


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (TREE, b""),
        (TREE, b"\0" * 1000),
        (BUSH, b"\2" * 100_000),
        (BUSH, b"\x50" + b"\0" * 120 + b"\2" * 100_000),
        ({"type": "record", "name": "Holder", "fields": [{"name": "trees", "type": lists(TREE)}]}, b"\x02"),
        (lists("null"), b"\xd0\x0f" * 100_000 + b"\0"),
        (lists("null"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"),
        (lists("null"), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\0"),
        (lists("null", 2), b"\x80\x08" + b"\xd0\x0f\0" * 512 + b"\0"),
        (lists("null", 2), b"\x20\0" * 50_000 + b"\0"),
        (lists({"type": "fixed", "name": "F", "size": 0}), b"\x90\x4e\0"),
        (lists("long", 90), b"\2" * 100),
        ("long", b"\xff" * 1_000_000),
        ("string", b"\xff" * 1_000_000),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "map", "values": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3000}, b"\x80\x80\x7a" + b"\x7f" * 10**6),
    ],
)
@pytest.mark.timeout(60)
def test_hostile_payloads(schema: Any, row: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(SerdeError, match=r"^\[CS-402\]"):
        serdes.avro(schema).deserialize(row)
    assert len(find_invalid(serdes.avro(schema), pa.array([row, None, row], pa.large_binary()))) == 2
    assert time.process_time() - begin < 10


def test_a_truncated_tree_takes_no_neighbour() -> None:
    serde = serdes.avro(TREE)
    good = serde.serialize({"left": {"left": None, "right": None}, "right": None})
    wire = pa.array([b"", good, b"\0\0", good], pa.large_binary())
    assert [row for row, _ in find_invalid(serde, wire, way="objects")] == [0, 2]
    assert len(serde.decode_objects(wire.take(pa.array([1, 3])))) == 2
