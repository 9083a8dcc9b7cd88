"""A database whose connector goes away and takes snapshots, and what tables of its topic hold at the end."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

import crossstream as cs
from crossstream import agg, serdes
from tests.laws.engine import Way
from tests.reference.change_events import LEFT_OUT

BYTES = serdes.bytes()
GROUPS = {0: "zero", 1: "one", 2: "two"}


@dataclass
class Note:
    id: int
    grade: int
    text: str


class Event(NamedTuple):
    time: int
    partition: int
    key: bytes
    value: bytes | None


@dataclass
class Database:
    """A table and the topic of its changes. ``role``: which table of its snapshots it is, for their marks."""

    partitions: int
    role: str = "only"
    form: str = "envelope"
    rows: dict[int, Note] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    lsn: int = 100
    time: int = 1000
    table: str = "notes"

    def change(self, key: int, grade: int | None, *, seen: bool) -> None:
        """Puts a row, or deletes it. ``seen``: a connector streams the change."""
        self.lsn += 10
        before = self.rows.pop(key, None)
        if grade is None:
            if before is not None and seen:
                self.emit("d", key, None)
            return
        row = self.rows[key] = Note(key, grade, f"text {grade}")
        if not seen:
            return
        written = replace(row, text=LEFT_OUT) if before is not None and before.text == row.text else row
        self.emit("c" if before is None else "u", key, written)

    def emit(self, op: str, key: int, row: Note | None, mark: str = "false") -> None:
        self.time += 1
        lsn = None if mark == "incremental" else self.lsn
        source = {"snapshot": mark, "lsn": lsn, "name": "shop", "db": "shop", "table": self.table}
        after = None if row is None else asdict(row)
        event: dict[str, Any] = {"op": op, "before": None, "after": after, "source": source}
        own: dict[str, Any] = {"id": key}
        if self.form == "plain":
            flat = {f"__source_{name}": value for name, value in source.items()}
            event = {**(after or own), "__op": op, "__deleted": str(row is None).lower(), **flat}
        if self.form == "wrapped":
            event, own = {"schema": None, "payload": event}, {"schema": None, "payload": own}
        place = Event(self.time, key % self.partitions, _json(own), _json(event))
        self.events.append(place)
        if op == "d":
            self.events.append(place._replace(value=None))

    def snapshot(self, order: int, until: int | None = None, *, condition: bool = False) -> None:
        """Shows rows; ``until``: so many of them, then the connector is gone. ``condition``: only those of grade 0."""
        self.time += 5
        keys = sorted(self.rows, key=lambda key: (key * 7 + order) % 5)
        if condition:
            keys = [key for key in keys if self.rows[key].grade == 0]
        for number, key in enumerate(keys[:until]):
            mark = self._mark(number == 0, number == len(keys) - 1)
            self.emit("r", key, self.rows[key], mark)
            self.time -= number % 2  # several in a millisecond
        self.time += 5

    def _mark(self, first: bool, last: bool) -> str:
        if last and self.role in ("only", "last"):
            return "last"
        if first and self.role in ("only", "first"):
            return "first"
        if last:
            return "last_in_data_collection"
        return "first_in_data_collection" if first else "true"

    def incremental(self, chunk: Sequence[int]) -> None:
        for key in chunk:
            if key in self.rows:
                self.emit("r", key, self.rows[key], "incremental")

    def shows_an_end(self) -> bool:
        """Whether a snapshot of the rows there has a mark of its end."""
        return len(self.rows) >= (2 if self.role == "first" else 1)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


some_keys = st.integers(0, 5)
some_changes = st.lists(st.tuples(some_keys, st.integers(0, 2) | st.none()), max_size=6)
some_phases = st.lists(
    st.tuples(
        some_changes,  # while the connector is away
        st.lists(st.integers(1, 3), max_size=2),  # snapshots that break off, after so many rows
        st.integers(0, 4),  # the order of the rows in the snapshot
        some_changes,  # that it streams
        st.lists(some_keys, max_size=3),  # an incremental snapshot
    ),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class Life:
    """What happens to a database, how it is written, and in which order the partitions of the topic are seen."""

    phases: Sequence[Any]
    role: str
    form: str
    turns: Sequence[int]
    settings: dict[str, Any]

    def lived(self, partitions: int) -> Database:
        base = Database(partitions, self.role, self.form)
        for away, broken, order, streamed, chunk in self.phases:
            for key, grade in away:
                base.change(key, grade, seen=False)
            for number, rows in enumerate(broken):
                if rows < len(base.rows):
                    base.snapshot(order, rows)
                    base.change(number, None, seen=False)
            while not base.shows_an_end():
                base.change(next(key for key in range(9) if key not in base.rows), 1, seen=False)
            base.snapshot(order)
            for number, (key, grade) in enumerate(streamed):
                base.change(key, grade, seen=True)
                base.incremental(chunk[number : number + 1])
        return base

    def arrivals(self, events: Sequence[Event]) -> list[Event]:
        """The events in an order that keeps that of each partition; after the turns as they were written."""
        queues: dict[int, deque[int]] = {}
        for number, event in enumerate(events):
            queues.setdefault(event.partition, deque()).append(number)
        found = []
        for turn in self.turns:
            there = [queue for _, queue in sorted(queues.items()) if queue]
            if there:
                found.append(there[turn % len(there)].popleft())
        found += sorted(number for queue in queues.values() for number in queue)
        return [events[number] for number in found]


some_settings = st.sampled_from(
    [
        {},
        {"ordered_by": "source.lsn"},
        {"unavailable_fields": []},
        {"ordered_by": "source.lsn", "truncate": "delete"},
    ]
)
some_lives = st.builds(
    Life,
    some_phases,
    st.sampled_from(["only", "first", "middle", "last"]),
    st.sampled_from(["envelope", "wrapped", "plain"]),
    st.lists(st.integers(0, 4), max_size=40),
    some_settings,
)


def built(settings: dict[str, Any]) -> Any:
    """The table, counted by grade and joined by it."""
    builder = cs.StreamsBuilder()
    notes = builder.table(
        "notes", source=cs.debezium(Note, **settings), materialized=cs.Materialized(store="notes")
    )
    names = builder.table("names", key=int, value=str)
    notes.group_by("grade").agg(count=agg.count(), materialized=cs.Materialized(store="counts"))
    notes.join(
        names,
        foreign_key="grade",
        joiner=lambda note, name: f"{note.text} {name}",
        materialized=cs.Materialized(store="named", value=serdes.string()),
    )
    return builder.build()


def run(life: Life, way: Way, base: Database) -> dict[str, dict[Any, Any]]:
    """What the stores hold after all events."""
    settings = life.settings
    arrivals = life.arrivals(base.events)
    if settings.get("unavailable_fields") == []:
        arrivals = [one._replace(value=_whole(one.value)) for one in arrivals]
    ends = way.ends(len(arrivals))
    with way.driver(built(settings)) as driver:
        names = driver.create_input_topic("names", serdes.int64(), serdes.string())
        for grade, name in GROUPS.items():
            names.pipe_input(grade, name, timestamp=0)
        driver.commit()
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        for number, event in enumerate(arrivals):
            topic.pipe_input(event.key, event.value, event.time, partition=event.partition)
            if number + 1 in ends:
                driver.commit()
        driver.commit()
        return {
            store: dict(driver.get_key_value_store(store).all()) for store in ("notes", "counts", "named")
        }


def _whole(value: bytes | None) -> bytes | None:
    """An event without values left out, as connectors of other databases write it."""
    if value is None or LEFT_OUT.encode() not in value:
        return value
    event = json.loads(value)
    row = event.get("payload", event)
    row = row.get("after", row)
    row["text"] = f"text {row['grade']}"
    return _json(event)


def of_database(base: Database) -> dict[str, dict[Any, Any]]:
    """The same of the rows that are there."""
    return {
        "notes": base.rows,
        "counts": {
            grade: {"count": count}
            for grade, count in Counter(row.grade for row in base.rows.values()).items()
        },
        "named": {key: f"{row.text} {GROUPS[row.grade]}" for key, row in base.rows.items()},
    }


def check(life: Life, way: Way) -> None:
    base = life.lived(way.partitions)
    assert run(life, way, base) == of_database(base)
