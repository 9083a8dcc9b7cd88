"""Values that are no values: left out, not finite, bytes in hex; and rows that look like events."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

import crossstream as cs
from tests.serdes.debezium.test_events import POSTGRES, changes
from tests.serdes.debezium.test_events import read as read_events
from tests.serdes.debezium.test_types import event, read

LEFT = "__debezium_unavailable_value"
HSTORE = json.dumps({LEFT: LEFT}, separators=(",", ":"))
CONNECT, TIME = "org.apache.kafka.connect.data.", "io.debezium.time."


@dataclass
class Large:
    id: int
    text: str | None = None
    data: bytes | None = None
    many: list[bytes] | None = None
    words: list[str] | None = None


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    "encode", [base64.b64encode, base64.urlsafe_b64encode, lambda data: data.hex().encode()]
)
def test_placeholders_of_hstore_and_of_arrays_of_bytes(encode: Any, plain: bool, count: int) -> None:
    data = encode(LEFT.encode()).decode()
    row = {"id": 1, "text": HSTORE, "data": data, "many": [data], "words": [HSTORE]}
    value = row if plain else {"op": "u", "after": row, "source": POSTGRES}
    found = read_events(cs.debezium(Large), *[({"id": 1}, value)] * count)
    assert found.bad == []
    assert found.part.unavailable.tolist() == [0b1111] * count


def test_a_placeholder_of_hstore_beside_plain_columns() -> None:
    @dataclass
    class Note:
        id: int
        text: str

    row = {"op": "u", "after": {"id": 1, "text": HSTORE}, "source": POSTGRES}
    assert read_events(cs.debezium(Note), ({"id": 1}, row)).part.unavailable.tolist() == [1]
    own = {**row, "after": {"id": 1, "text": '{"n/a":"n/a"}'}}
    found = read_events(cs.debezium(Note, unavailable_value="n/a"), ({"id": 1}, own))
    assert found.part.unavailable.tolist() == [1]


@pytest.mark.parametrize("schema", [None, {"type": "string"}])
def test_bytes_as_the_connector_writes_them(schema: Any) -> None:
    data = bytes.fromhex("deadbeeffbff")
    url_safe = base64.urlsafe_b64encode(data).decode()
    assert "-" in url_safe or "_" in url_safe
    assert read(bytes, event(schema, "DEADBEEFfbff"), binary="hex") == ([data], [])
    assert read(list[bytes], event(schema, ["deadbeeffbff", ""]), binary="hex") == ([[data, b""]], [])
    assert read(bytes, event(schema, url_safe), binary="base64-url-safe") == ([data], [])
    assert read(bytes, event(schema, base64.b64encode(data).decode())) == ([data], [])
    assert len(read(bytes, event(schema, "no hex"), binary="hex")[1]) == 1
    with pytest.raises(cs.TopologyError, match="binary='octal'"):
        cs.debezium(Large, binary="octal")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "infinity", "-infinity"])
@pytest.mark.parametrize(
    ("kind", "advice"),
    [(Decimal, "float or str"), (int, "float or str"), (date, "str"), (datetime, "str"), (time, "str")],
)
def test_numbers_and_times_that_are_not_finite_are_bad_with_advice_that_helps(
    kind: Any, advice: str, text: str
) -> None:
    for settings in ({}, {"decimals": "string"}):
        found, bad = read(kind | None, event(None, text), event(None, None), **settings)
        assert found == [None]
        assert len(bad) == 1
        assert text in bad[0]
        assert bad[0].endswith(f"declare it as {advice}")
    assert read(str, event(None, text)) == ([text], [])


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-infinity"])
def test_floats_that_are_not_finite_are_read_as_such_which_json_rows_refuse(text: str) -> None:
    found, bad = read(float, event(None, 1.5), event(None, text), event(None, 2))
    assert found == [1.5, 2.0]
    assert "JSON has finite numbers only" in bad[0]
    found, bad = read(float, event(None, text), event(None, "1.5"), decimals="string")
    assert found == [1.5]
    assert "JSON has finite numbers only" in bad[0]


@pytest.mark.parametrize("name", [f"{TIME}Date", f"{CONNECT}Date"])
@pytest.mark.parametrize("kind", [datetime, time])
def test_a_date_for_a_declared_datetime(name: str, kind: Any) -> None:
    _, bad = read(kind, event({"type": "int32", "name": name}, 19782))
    assert f"a {name}" in bad[0]
    assert "declare it as date" in bad[0]
    assert "units" not in bad[0]
    assert "declare it as int" in read(kind, event({"type": "int32", "name": f"{TIME}Year"}, 2026))[1][0]


@dataclass
class Audit:
    id: int
    op: str
    before: str | None = None
    after: str | None = None


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_plain_row_with_the_columns_of_an_event(wrapped: bool) -> None:
    row = {"id": 7, "op": "c", "before": "a", "after": None}

    def whole(value: Any) -> Any:
        return {"payload": value} if wrapped else value

    assert changes(cs.debezium(Audit), ({"id": 7}, whole(row))) == [(7, Audit(7, "c", "a", None))]
    inside = {"op": "u", "before": None, "after": row, "source": POSTGRES}
    assert changes(cs.debezium(Audit), ({"id": 7}, whole(inside))) == [(7, Audit(7, "c", "a", None))]
    gone = {**row, "__deleted": "true"}
    assert changes(cs.debezium(Audit), ({"id": 7}, whole(gone))) == [(7, None)]


@pytest.mark.parametrize("every", [1, 9])
def test_a_delete_of_a_plain_row_that_is_a_tombstone_alone(every: int) -> None:
    @dataclass
    class Row:
        id: int
        n: int

    def run(**settings: Any) -> tuple[Any, Any]:
        builder = cs.StreamsBuilder()
        source = cs.debezium(Row, ordered_by="source.lsn", **settings)
        builder.table("rows", source=source, materialized=cs.Materialized(store="rows"))
        with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
            topic = driver.create_input_topic("rows", cs.serdes.json(), cs.serdes.json())
            for key, row in ((1, (7, 10)), (2, (8, 11)), (1, None), (2, (9, 5))):
                value = None if row is None else {"id": key, "n": row[0], "__source_lsn": row[1]}
                topic.pipe_input({"id": key}, value)
            driver.commit()
            store = driver.get_key_value_store("rows")
            return [store.get(1), store.get(2)], driver.metrics()["dropped"]

    late = {"rows: out-of-order-event": 1}
    assert run(tombstones="delete") == ([None, Row(2, 8)], late)
    assert run() == ([Row(1, 7), Row(2, 8)], {**late, "rows: tombstone": 1})
    with pytest.raises(cs.TopologyError, match="tombstones='keep'"):
        run(tombstones="keep")
