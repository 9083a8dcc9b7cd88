"""Rows of processors are where the processor is: queries find them all, and they are not cut apart."""

from __future__ import annotations

from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.query.verification import verify_state
from tests.docs.state_folder import Writer

TEXT, NUMBER = serdes.string(), serdes.int64()
STORE = cs.KeyValueStore("held", key=TEXT, value=NUMBER)


class Held:
    prefix = ""

    def init(self, context: cs.ProcessorContext) -> None:
        self.held = context.store("held")

    def process(self, record: cs.Record) -> None:
        self.held.put(f"{self.prefix}{record.key}", record.value)


class Renamed(Held):
    prefix = "of "


def topology(supplier: type[Held]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).process(supplier, [STORE])
    return builder.build()


RECORDS = [(f"k{n}", n, n) for n in range(40)]


@pytest.mark.parametrize("supplier", [Held, Renamed])
def test_queries_find_rows_in_any_partition(supplier: type[Held]) -> None:
    with cs.TopologyTestDriver(topology(supplier), partitions=3, commit_every=7) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_records(RECORDS)
        driver.commit()
        store = driver.get_key_value_store("held")
        keys = [f"{supplier.prefix}{key}" for key, _, _ in RECORDS]
        assert store.get_many(keys) == dict(zip(keys, range(40), strict=True))
        assert [store.get(key) for key in keys] == list(range(40))
        assert sorted(dict(store.all())) == sorted(keys)


@pytest.mark.parametrize("supplier", [Held, Renamed])
def test_rows_under_other_keys_keep_the_number_of_partitions(supplier: type[Held], tmp_path: Path) -> None:
    writer = Writer(tmp_path, topology(supplier), partitions=2)
    rows = [(TEXT.serialize(key), NUMBER.serialize(value), ts) for key, value, ts in RECORDS]
    writer.run({"in": rows})
    if supplier is Renamed:
        with pytest.raises(cs.StateError) as error:
            writer.rescale(3)
        assert error.value.code == "CS-731"
    else:
        writer.rescale(3)
    writer.close()
    assert verify_state(tmp_path).problems == []
    store = cs.open_store(tmp_path, "held")
    assert [store.get(f"{supplier.prefix}{key}") for key, _, _ in RECORDS] == list(range(40))
