"""The rows of tables in a database, which are read back: the driver brings them into a folder that all workers see.

Only the driver connects to a database. The folder is that of the stores that are rebuilt, and is emptied with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from crossstream.api.topology import Topology
from crossstream.evolution.decision import Decision
from crossstream.evolution.read_back import unreadable
from crossstream.filetopics import FileTopics
from crossstream.graph.nodes import TableSink
from crossstream.runtime.tables_and_topics import TableLog
from crossstream.storage.log_entries import Commit
from crossstream.storage.root import StateRoot
from crossstream.topics import RangeReader

FORM = "postgres"
_FOLDER = "tables"
_PREFIX = "__table-"
"""Of topics with rows. No pattern matches such a name."""


@dataclass(frozen=True, slots=True)
class BroughtRows:
    """`Tables`: rows that were brought into ``folder``, each table as a topic."""

    folder: str
    names: Collection[str]

    def log(self) -> TableLog:
        return FileTopics(self.folder, durable=False).log()

    def reader(self) -> RangeReader:
        return FileTopics(self.folder, durable=False).reader()


def tables_of(decision: Decision, topology: Topology) -> dict[str, TableSink]:
    """The sinks whose tables in a database are read back, by the names that their rows have as topics.

    Raises `StateError` CS-755 for one without keys.
    """
    compared = {result.sink for result in decision.results if result.compared == "sink"}
    found = [sink for sink in topology.each(TableSink) if sink.form == FORM and sink.name in compared]
    for sink in found:
        if not sink.upserts:
            raise unreadable(sink, "its rows have no keys")
    return {f"{_PREFIX}{place}": sink for place, sink in enumerate(found)}


def bring(tables: Mapping[str, TableSink], there: StateRoot, commit: Commit) -> BroughtRows:
    """Brings the rows of tables, by the names of their topics, into the folder of a temporary state.

    ``commit``: of the state; its time is that of rows whose table has no column of times. Raises `StateError` CS-755
    for a table whose rows are not what its sink has written, and for a state on an object store.
    """
    if not tables:
        return BroughtRows("", ())
    if there.is_remote:
        what = "rows of a database are compared out of a folder, and the state is on an object store"
        raise unreadable(next(iter(tables.values())), what)
    from crossstream.databases.parsing import Unread
    from crossstream.databases.reading import rows_in

    topics = FileTopics(str(there.here / _FOLDER), durable=False)
    with closing(topics.log()) as log:
        for name in tables:
            log.create_topic(name, commit.partitions)
    for name, node in tables.items():
        with closing(topics.writer()) as writer, closing(rows_in(node, int(commit.time * 1000))) as found:
            try:
                for records in found:
                    writer.write(name, records)
                    writer.flush()
            except Unread as error:
                raise unreadable(node, str(error)) from error
    return BroughtRows(topics.topics_dir, tuple(tables))
