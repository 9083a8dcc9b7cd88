"""The tables of histories, and where they end: as the state of the application says, and no table after its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crossstream.lakehouse.history_rows import HistoryRows, other_table
from crossstream.lakehouse.opening import open_versions
from crossstream.lakehouse.seams import found_seam
from crossstream.lakehouse.versions import LakeVersions
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Seam
from crossstream.topics import OffsetRange


@dataclass(slots=True)
class Opened:
    """The tables of histories, each opened when it is first needed, and where they end."""

    address: str
    histories: Mapping[str, HistoryRows]
    _versions: dict[str, LakeVersions] = field(default_factory=dict)
    _seams: dict[str, Seam] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    def seam(self, topic: str) -> Seam:
        """Where the table ends: as the state says, or else as the table is now."""
        if topic not in self._seams:
            application = BatchLog(self.address).application()
            noted = None if application is None else application.starts.seams.get(topic)
            if noted is None:
                noted = found_seam(self.histories[topic].history, self._opened(topic))
                self._checked.add(topic)
            self._seams[topic] = noted
        return self._seams[topic]

    def versions(self, topic: str) -> LakeVersions:
        """The table. Raises `SourceError` CS-603 if it is another one than that of the seam."""
        versions, seam = self._opened(topic), self.seam(topic)
        if topic not in self._checked:
            if versions.table_id() != seam.table_id:
                raise other_table(self.histories[topic].history, seam.table_id)
            self._checked.add(topic)
        return versions

    def _opened(self, topic: str) -> LakeVersions:
        if topic not in self._versions:
            self._versions[topic] = open_versions(self.histories[topic].history.table)
        return self._versions[topic]

    def ends(self, span: OffsetRange) -> int:
        """Where the table ends in the partition of a range; 0: it has nothing of it."""
        if span.topic not in self.histories:
            return 0
        return self.seam(span.topic).ends.get(span.partition, 0)

    def close(self) -> None:
        for versions in self._versions.values():
            versions.close()
        self._versions.clear()
