"""Random change events, and their table by the driver and by applying them one by one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.engine import Way
from tests.reference.change_events import LEFT_OUT, Rows

BYTES = serdes.bytes()


@dataclass
class Note:
    id: int
    stars: int
    text: str
    more: str | None = None


some_texts = st.sampled_from(["a", "b", LEFT_OUT, LEFT_OUT])

some_events = st.lists(
    st.tuples(
        st.sampled_from(
            ["c", "u", "u", "u", "r", "d", "tombstone", "heartbeat", "damaged", "truncate", "message"]
        ),
        st.integers(1, 3),
        st.integers(0, 9),
        some_texts,
        some_texts | st.none(),
        st.integers(0, 9) | st.none(),
        st.sampled_from(["envelope", "wrapped", "plain"]),
        st.booleans(),
    ),
    max_size=40,
)


def record(op, key, stars, text, more, position, form, keyed) -> tuple[bytes | None, bytes | None]:
    """The bytes of an event."""
    own = json.dumps({"id": key}).encode()
    if op == "tombstone":
        return own, None
    if op == "heartbeat":
        return b'{"serverName":"shop"}', b'{"ts_ms":17}'
    if op == "damaged":
        return own, b'{"op":"c","after":{"id":1,"stars":"many","text":"a"}}'
    row = {"id": key, "stars": stars, "text": text, "more": more}
    if op == "truncate":
        event: dict[str, Any] = {"op": "t", "before": None, "after": None, "source": {"lsn": position}}
    elif op == "message":
        event = {"op": "m", "source": {"lsn": position}, "message": {"prefix": "x"}}
    elif form == "plain":
        event = {**row, "__source_lsn": position, "__deleted": "true" if op == "d" else "false"}
    else:
        before, after = ({"id": key}, None) if op == "d" else (None, row)
        event = {"op": op, "before": before, "after": after, "source": {"lsn": position}, "ts_ms": 5}
    if form == "wrapped":
        event = {"schema": None, "payload": event}
        own = json.dumps({"schema": None, "payload": {"id": key}}).encode()
    return (own if keyed or op in ("truncate", "message") else None), json.dumps(event).encode()


EventCase = tuple[list[Any], bool]
"""Events, and whether their positions order them."""
event_cases: st.SearchStrategy[EventCase] = st.tuples(some_events, st.booleans())


def check(case: EventCase, way: Way) -> None:
    """The store is what the database holds; what is left out is counted. Events of a row are in one partition."""
    events, ordered = case
    builder = cs.StreamsBuilder()
    settings: dict[str, Any] = {"ordered_by": "source.lsn", "truncate": "delete"} if ordered else {}
    source = cs.debezium(Note, **settings)
    builder.table("notes", materialized=cs.Materialized(store="notes"), source=source)
    reference, ends = Rows(ordered), way.ends(len(events))
    driver = way.driver(builder.build(), deserialization_errors="skip", processing_errors="skip")
    with driver:
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        for number, event in enumerate(events):
            op, key, stars, text, more, position, _, _ = event
            own, value = record(*event)
            topic.pipe_input(own, value, timestamp=number, partition=key % way.partitions)
            if op == "truncate" and ordered and position is not None:
                reference.truncate(position)
            elif op in ("damaged", "truncate"):
                reference.dropped["undecodable"] += 1
            elif op in ("heartbeat", "message"):
                reference.dropped["no-change-event"] += 1
            else:
                row = {"id": key, "stars": stars, "text": text, "more": more}
                reference.apply(op, key, row, position)
            if number + 1 in ends:
                driver.commit()
        driver.commit()
        store = driver.get_key_value_store("notes")
        rows = {key: asdict(row) for key, row in store.all()}
        assert rows == reference.rows
        dropped = driver.metrics()["dropped"]
        assert {name.removeprefix("notes: "): count for name, count in dropped.items()} == dict(
            reference.dropped
        )
