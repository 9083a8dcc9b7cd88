"""The types of a real Postgres, as the real connector writes them, hold what SQL shows."""

from __future__ import annotations

from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.serdes.debezium import avro
from crossstream.serdes.debezium.changes import unwrap
from tests.data.debezium import recordings
from tests.operators.debezium.law.test_recordings import known_ids

UTC = timezone.utc


def instant(text: str) -> datetime:
    text = text if text.endswith("+00") else f"{text}+00"
    whole, _, fraction = text.removesuffix("+00").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction.ljust(6, '0')}+00:00")


def items(text: str, read: Any) -> list[Any]:
    inner = text[1:-1]
    return [None if one == "NULL" else read(one.strip('"')) for one in inner.split(",")] if inner else []


COLUMNS: dict[str, tuple[Any, Any]] = {
    "id": (int, int),
    "b": (bool, lambda text: text == "t"),
    "i2": (int, int),
    "i4": (int, int),
    "i8": (int, int),
    "o": (int, int),
    "n": (Decimal, Decimal),
    "n10_2": (Decimal, Decimal),
    "m": (Decimal, lambda text: Decimal(text.replace("$", "").replace(",", ""))),
    "t": (str, str),
    "v": (str, str),
    "c": (str, str),
    "ci": (str, str),
    "x": (str, str),
    "lt": (str, str),
    "bin": (bytes, lambda text: bytes.fromhex(text[2:])),
    "bit1": (bool, lambda text: text == "1"),
    "da": (date, date.fromisoformat),
    "ti3": (time, time.fromisoformat),
    "ts": (datetime, instant),
    "ts0": (datetime, instant),
    "ts3": (datetime, instant),
    "tsz": (datetime, instant),
    "u": (UUID, UUID),
    "j": (str, str),
    "jb": (str, str),
    "e": (Literal["sad", "ok", "very happy"], str),
    "p": (int, int),
    "ip": (str, str),
    "a_i": (list[int | None], lambda text: items(text, int)),
    "a_n": (list[Decimal | None], lambda text: items(text, Decimal)),
    "a_d": (list[date], lambda text: items(text, date.fromisoformat)),
    "a_ts": (list[datetime], lambda text: items(text, instant)),
    "a_tz": (list[datetime], lambda text: items(text, instant)),
    "a_u": (list[UUID], lambda text: items(text, UUID)),
    "a_b": (list[bool | None], lambda text: items(text, lambda one: one == "t")),
    "a_i8": (list[int], lambda text: items(text, int)),
    "a_e": (list[str], lambda text: items(text, str)),
}

NO_SCHEMA = ("n10_2", "m", "a_n", "ti3", "ts", "ts0", "ts3", "a_ts")
"""Columns that need settings where records have no schema."""

OTHER = {
    "json": {
        "scales": {"n10_2": 2, "m": 2, "a_n": 2},
        "units": {"ti3": "millis", "ts": "micros", "ts0": "millis", "ts3": "millis", "a_ts": "micros"},
    },
    "json-unknown": {
        "scales": {"n10_2": 2, "m": 2, "a_n": 2},
        "units": {"ti3": "millis", "ts": "micros", "ts0": "millis", "ts3": "millis", "a_ts": "micros"},
    },
    "rows-flagged": {
        "scales": {"n10_2": 2, "m": 2, "a_n": 2},
        "units": {"ti3": "millis", "ts": "micros", "ts0": "millis", "ts3": "millis", "a_ts": "micros"},
    },
    "json-other": {"decimals": "string"},
}
LESS = {
    "json-schemas-other": {"ts": "millis", "a_ts": "millis"},
    "avro-other": {"ts": "millis", "a_ts": "millis"},
}
"""Columns that a setting of the connector cuts to milliseconds."""

WITHOUT = {"json-other": {"bin", "n"}, "json-schemas-nanos": {"ts"}}
"""Columns that a setting of the connector writes in a form that is not read, or loses: hex, doubles, nanoseconds."""


@pytest.mark.parametrize("form", recordings.formats("types"))
def test_types_of_postgres(form, monkeypatch):
    monkeypatch.setattr(avro, "check_ids", partial(known_ids, "types"))
    columns = {name: it for name, it in COLUMNS.items() if name not in WITHOUT.get(form, ())}
    fields = [(name, kind if name == "id" else kind | None) for name, (kind, _) in columns.items()]
    settings: dict[str, Any] = {
        **OTHER.get(form, {}),
        **({"registry": "mock://types"} if "avro" in form else {}),
    }
    source = cs.debezium(make_dataclass("Types", fields), **settings)
    records = [one for one in recordings.recorded("types", form) if one.topic.endswith(".public.types")]
    data = [pa.array([getattr(one, part) for one in records], pa.large_binary()) for part in ("key", "value")]
    found = unwrap(source, *data)
    assert [reason for _, reason in found.bad] == []
    rows = {row.id: row for row in source.row.decode_objects(found.part.rows) if row is not None}
    differences = []
    for shown in recordings.tables("types")["types"]["rows"]:
        for name, (_, read) in columns.items():
            wanted = None if shown[name] is None else read(shown[name])
            got = getattr(rows[int(shown["id"])], name)
            if name in LESS.get(form, ()) and wanted is not None:
                wanted, got = cut(wanted), cut(got)
            if got != wanted:
                differences.append((shown["id"], name, got, wanted))
    assert differences == []


def cut(value: Any) -> Any:
    """Times in milliseconds."""
    if isinstance(value, list):
        return [cut(one) for one in value]
    return value - timedelta(microseconds=value.microsecond % 1000)
