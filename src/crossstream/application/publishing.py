"""Publishes the results of each batch once: file topics, transactions of Kafka, tables of a lake or a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from msgspec import structs

from crossstream.application.inputs import named_topics
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.graph.nodes import Graph, Sink
from crossstream.lakehouse.tables import Tables, staged_rows, unstaged_rows
from crossstream.runtime.delivery import DeliveringConnection, Delivery, Place, nothing
from crossstream.runtime.worker import delivery_of
from crossstream.storage.commit_log import STAGED, BatchLog
from crossstream.storage.files import file_names
from crossstream.storage.log_entries import BatchEntry, Commit, Publication, StagedFrame, StagedRows, shown
from crossstream.storage.manifest import checked_staged, staged_name
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Report
from crossstream.topics import is_elsewhere


class Publishing:
    """Publishes staged records when their batch has run, each once: to file topics, in a transaction, in tables.

    ``delivery``: how records reach the topics. ``mark``: the topic that has the mark of the transactions. ``tables``:
    of Delta, Iceberg and Postgres.
    """

    def __init__(self, delivery: Delivery, log: BatchLog, mark: str, tables: Tables) -> None:
        self.delivery = delivery
        self.log = log
        self.mark = mark
        self.tables = tables
        self.state = ""
        self._rows: tuple[StagedRows, ...] = ()

    @classmethod
    def of(
        cls,
        topology: Graph,
        config: StreamsConfig,
        connection: DeliveringConnection | None,
        log: BatchLog,
        staging: Path,
    ) -> Publishing:
        """Of an application, whose state has the log. ``staging``: as `staging_of`."""
        application = config.application_id
        place = Place(application, log.root, staging, lambda: log.assure(0.0))
        tables = Tables(topology, application)
        return cls(delivery_of(connection, place), log, mark_topic(topology, config), tables)

    def begin(self, state: str, newest: Commit, *, restarts: bool) -> None:
        """Before the first batch. ``state``: its id; ``newest``: its last batch; ``restarts``: it may be older."""
        self.state = state
        self.delivery.begin(self.mark, state, newest.id, restarts=restarts)
        self.tables.begin(state, newest.id, {} if restarts else newest.tables, restarts=restarts)

    def publish(
        self, entry: BatchEntry, report: Report, commit: Commit, sent: Mapping[str, list[bytes]]
    ) -> Commit:
        """Publishes what a batch has staged, in its order. ``sent``: what it sent to the driver, by sink.

        Returns the commit, which knows of the tables as well.

        A frame must not outlive the entry of its batch, whose ranges it was made of.
        """
        self.log.settled()
        self.log.assure()
        self.log.settle(file_names(report.written))
        self._rows = self._stage(entry, sent)
        written = {sink: entry.id for _, sink in self._rows}
        commit = structs.replace(commit, tables={**self.tables.written, **written})
        if not report.staged and not self._rows:
            return commit
        staged = tuple((Path(frame[0]).name, *frame[1:]) for frame in report.staged)
        held = self.delivery.kept(staged)
        self.log.settle(f"{STAGED}/{name}" for name in [*held, *(name for name, _ in self._rows)])
        # Functions may give other values, and Spark split its rows otherwise, if the batch ran again; the code that
        # changed the application may be gone.
        publication = Publication(commit, staged, self.mark, self._rows)
        is_noted = bool(held or self._rows) or entry.epoch >= 0 or entry.becomes is not None
        note = partial(self.log.write_publication, entry, publication) if is_noted else nothing
        self._append(entry, publication, note)
        return commit

    def finish_last(self, application_id: str, *, restarts: bool) -> None:
        """Commits the batch whose results the last run of this application was publishing, if they were noted."""
        found = self.log.application()
        if found is None or found.application_id != application_id:
            return
        newest = self.log.newest()
        entry = self.log.take_over(newest)
        publication = None if entry is None else entry.publication
        if entry is None or publication is None:
            if entry is not None and entry.becomes is not None:
                self.log.forget(entry.id)  # a change that nothing was seen of
            return
        if publication.staged and not self.delivery.is_staged:
            return
        self.state = found.state_id
        self.log.repeat_batch(entry)
        self.log.settled()
        if not restarts:
            self.tables.written = dict(newest.tables)
        self._append(entry, publication)
        self.log.write_commit(publication.commit)
        if entry.becomes is not None:
            self.log.write_application(entry.becomes)

    def forget(self, staged: Iterable[StagedFrame], frame_files: Iterable[StagedRows] = ()) -> None:
        """Removes the files of a batch that is committed."""
        names, self._rows = [name for name, _ in (*self._rows, *frame_files)], ()
        names += self.delivery.kept(staged)
        self.delivery.forget(staged)
        if names:
            self.log.root.discard([f"{STAGED}/{name}" for name in names], ())

    def close(self) -> None:
        self.delivery.close()
        self.tables.close()

    def _stage(self, entry: BatchEntry, sent: Mapping[str, list[bytes]]) -> tuple[StagedRows, ...]:
        """Writes the rows of tables to files."""
        storage, names = self.log.root.storage(STAGED), []
        for sink, rows in self.tables.rows(sent).items():
            data = staged_rows(rows)
            name = staged_name(f"table-{entry.id}", data)
            storage.write(name, data)
            names.append((name, sink))
        return tuple(names)

    def _append(
        self, entry: BatchEntry, publication: Publication, note: Callable[[], None] = nothing
    ) -> None:
        """Publishes what is not there yet. ``note``: notes the batch, before anything of it can be seen."""
        self.delivery.publish(entry, publication, self.state, note)
        read = partial(checked_staged, self.log.root.storage(STAGED))
        rows = {sink: unstaged_rows(read(name)) for name, sink in publication.tables}
        self.tables.write(rows, entry.id, self.state, shown(publication.commit.stands))


def staging_of(connection: DeliveringConnection | None, state: StateRoot) -> Path:
    """Where records for file topics wait for their batch: with local state, else with the topics.

    All workers see both; what is on this machine of remote state they do not.
    """
    beside = (
        connection.staging_folder(state.here.name) if state.is_remote and connection is not None else None
    )
    return beside or state.here / "staged"


def mark_topic(topology: Graph, config: StreamsConfig) -> str:
    """The topic whose first partition has the mark of the transactions: one that is written, else one that is read.

    Empty if nothing is written. Raises `ConfigError` CS-201 if no topic is known by its name.
    """
    written = sorted(topic for topic, _ in named_topics(topology, config))
    if written or not any(topology.each(Sink)):
        return next(iter(written), "")
    read = sorted(topic for node in topology for topic in node.topics if not is_elsewhere(topic))
    if not read and config.processing_guarantee == "exactly_once":
        what = "exactly_once needs one topic that the topology names: functions and patterns name all of them"
        step = 'read or write one topic by its name, or use processing_guarantee="at_least_once"'
        raise refuse("CS-201", what, step)
    return next(iter(read), "")
