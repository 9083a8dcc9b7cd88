"""Damaged records are bad alone, or read as something: their neighbours come out, and nothing else is raised."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.serdes.debezium import avro, envelopes
from crossstream.serdes.debezium.changes import unwrap
from tests.data.debezium import recordings
from tests.laws.effort import law
from tests.operators.debezium.law.test_recordings import known_ids, records


@dataclass
class Order:
    id: int
    customer_id: int | None
    amount: Decimal | None
    note: str | None
    at: datetime | None


def damaged(data: bytes, chance: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(made) + 1)
        way = chance.randrange(4)
        if way == 0:
            made[at : at + chance.randint(1, 9)] = b""
        elif way == 1:
            made[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 4)))
        elif way == 2 and at < len(made):
            made[at] = chance.randrange(256)
        else:
            del made[at:]
    return bytes(made)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "json-schemas", "rows-flagged", "avro"])
def test_damage_stays_alone(form, monkeypatch):
    known = recordings.schemas("changes")

    def some_ids(settings, ids, kind):
        found, _ = known_ids("changes", settings, ids[np.isin(ids, list(known))], kind)
        return found, {int(id): f"schema id {id} is not known" for id in ids if id >= 0 and id not in known}

    monkeypatch.setattr(avro, "check_ids", some_ids)
    chance = random.Random(7)
    source = cs.debezium(
        Order, scales={"amount": 2}, ordered_by="source.lsn", registry="mock://it" if form == "avro" else None
    )
    given_ = [one for one in records("changes", form, "orders") if one.value not in (None, b"null")]
    for _ in range(150):
        good = chance.choice(given_)
        values = [good.value, damaged(chance.choice(given_).value, chance), good.value]
        keys = [good.key, damaged(good.key, chance), good.key]
        found = unwrap(source, pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
        assert {0, 2} <= set(found.part.records.tolist()) <= {0, 1, 2}
        assert [row for row, _ in found.bad] in ([], [1])
        alone = unwrap(source, pa.array(keys[:1], pa.large_binary()), pa.array(values[:1], pa.large_binary()))
        assert found.part.rows[0] == alone.part.rows[0] == found.part.rows[-1]
        assert found.part.keys[0] == alone.part.keys[0] == found.part.keys[-1]


@dataclass
class Plain:
    id: int
    text: str | None
    number: float
    flag: bool = False


some_rows = st.lists(
    st.builds(
        Plain,
        st.integers(-(2**63), 2**63 - 1),
        st.text() | st.none(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    min_size=1,
    max_size=80,
)


@law
@given(some_rows)
def test_plain_rows_are_written_as_columns_are(rows):
    import msgspec

    values = [
        msgspec.json.encode({"op": "c", "before": None, "after": row, "source": {"lsn": number}})
        for number, row in enumerate(rows)
    ]
    source = cs.debezium(Plain)
    columns = pa.nulls(len(values), pa.large_binary()), pa.array(values, pa.large_binary())
    quick = unwrap(source, *columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelopes, "_quick_decoders", lambda *settings: None)
        slow = unwrap(source, *columns)
    assert quick.bad == slow.bad == []
    assert quick.part.rows.equals(slow.part.rows)
    assert quick.part.keys.equals(slow.part.keys)
    assert quick.part.columns.equals(slow.part.columns)
    assert source.row.decode_objects(quick.part.rows) == rows


def test_a_registry_that_is_away_is_no_bad_record(monkeypatch):
    from crossstream.errors import SerdeError

    def away(settings, ids, kind):
        raise SerdeError("the registry does not answer", code="CS-420", next="start it")

    monkeypatch.setattr(avro, "check_ids", away)
    data = pa.array([b"\0\0\0\0\1x"] * 3, pa.large_binary())
    with pytest.raises(SerdeError) as caught:
        unwrap(cs.debezium(Plain, registry="mock://it"), data, data)
    assert caught.value.code == "CS-420"
