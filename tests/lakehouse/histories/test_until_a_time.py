"""A table as it was at a time, and the topic from that time on, give what the whole topic gives.

> table(rows of the lake, topic from the time on) = table(the whole topic), if the lake has all from before the time

The lake may have newer rows, and the topic older records: both change nothing in the end.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.columns.flat import Format
from crossstream.recompute.verify import verify_results
from tests.lakehouse.histories.test_law import STORES, orders, people, run, table_topology
from tests.lakehouse.histories.topic_and_lake import PARTITIONS, Lake, Record, write_topic
from tests.laws.effort import cases

START = 1_700_000_000_000


def moment(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1000, timezone.utc)


def current(records: list[Record]) -> list[dict[str, object]]:
    """The rows of a table after these records."""
    last = {record.key: record for record in records}
    return [
        {"key": one.key, "customer": one.value[0], "amount": one.value[1], "at": one.time}
        for one in last.values()
        if one.value is not None
    ]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@given(data=st.data())
@cases(0.4)
def test_rows_and_the_topic_from_a_time_on_are_the_whole_table(form: Format, data: st.DataObject) -> None:
    records = sorted(data.draw(orders()), key=lambda record: record.time)
    customers = data.draw(people)
    until = data.draw(st.integers(records[0].time - 1, records[-1].time + 1))
    before = sum(record.time < until for record in records)
    newest = data.draw(st.integers(before, len(records)))
    begins = {
        one: data.draw(st.integers(0, sum(r.time <= until and r.partition == one for r in records[:before])))
        for one in range(PARTITIONS)
    }
    for one in range(PARTITIONS):  # the topic still has a record of the time or an earlier one
        mine = [record for record in records if record.partition == one]
        begins[one] = min(begins[one], max(0, sum(record.time <= until for record in mine) - 1))
    most = st.none() | st.integers(1, 9)
    stops = data.draw(st.lists(most, min_size=1, max_size=3))
    timed = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = Lake(folder, form)
        lake.create()
        lake.append(current(records[:newest]))
        for topics, lost in ((folder / "whole", None), (folder / "cut", begins)):
            write_topic(topics, records, lost)
            write_topic(topics, customers, topic="customers")
        stores = STORES[table_topology]
        expected = run(table_topology(None), stores, folder / "one", folder / "whole", [None])
        history = lake.history(until=moment(until), deleted=None, timestamp="at" if timed else None)
        crash = data.draw(st.none() | st.integers(0, 3))
        assert run(table_topology(history), stores, folder / "two", folder / "cut", stops, crash) == expected
        lake.append([{"key": "z", "customer": "later", "amount": 0, "at": until}])
        assert run(table_topology(history), stores, folder / "two", folder / "cut", [None]) == expected
        config = cs.StreamsConfig(
            application_id="shop", state_dir=folder / "two" / "state", topics_dir=folder / "cut"
        )
        plan = plan_topology(table_topology(history))
        connection = connection_of(config, plan.topology, folder / "two" / "state")
        assert verify_results(folder / "two" / "state", plan, connection).different == 0
