"""The records of a connector in file topics: each partition grows as far as a test says.

What Kafka promises is the order in one partition. So a test may see an END whose events are not there, and events whose
END is not. One thing is kept, since Debezium gives nothing to see it by: the last row of a snapshot is shown when all
its other rows are, and so is what was written behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.laws.database.connector import Connector, Owner, Record
from tests.spark.world import World


class Shown:
    """``records``: those of the connector, or others in their place, as `compacted` leaves."""

    def __init__(
        self, world: World, connector: Connector, records: Mapping[Owner, Sequence[Record]] | None = None
    ) -> None:
        self.world = world
        self.records = connector.topics if records is None else records
        self.counts = dict.fromkeys(self.records, 0)
        self._connector = connector
        log = world.topics.log()
        for topic in {topic for topic, _ in self.records}:
            log.create_topic(topic, sum(name == topic for name, _ in self.records))

    @property
    def owners(self) -> list[Owner]:
        return list(self.records)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left to be shown."""
        return all(self.counts[owner] == len(records) for owner, records in self.records.items())

    def show(self, topic: str, partition: int = 0, count: int | None = None) -> int:
        """Shows the next records of a partition, or all there are; says how many."""
        owner = topic, partition
        records, start = self.records[owner], self.counts[owner]
        end = len(records) if count is None else min(len(records), start + count)
        if end > start:
            self._show_snapshots(records[end - 1].number)
        self._append(owner, end)
        return end - start

    def show_all(self) -> None:
        """Shows all that the connector has written so far."""
        for owner, records in self.records.items():
            self._append(owner, len(records))

    def _show_snapshots(self, number: int) -> None:
        """Shows what was written up to the end of the last snapshot that ends with this record, or before it."""
        written = (one for records in self._connector.topics.values() for one in records)
        over = max((one.number for one in written if one.ends_snapshot and one.number <= number), default=0)
        for owner, records in self.records.items():
            self._append(owner, sum(one.number <= over for one in records))

    def _append(self, owner: Owner, end: int) -> None:
        start, (topic, partition) = self.counts[owner], owner
        if end > start:
            rows = [record.wire for record in self.records[owner][start:end]]
            self.world.append_wire(topic, rows, [partition] * len(rows))
            self.counts[owner] = end
