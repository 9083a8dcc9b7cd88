"""Publishes the results of each batch once: file topics, transactions of Kafka, tables of Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from crossstream.config import StreamsConfig
from crossstream.errors import ConfigError
from crossstream.filetopics import Staged
from crossstream.graph.nodes import Graph, Sink, Source
from crossstream.lakehouse.tables import Tables, staged_rows, unstaged_rows
from crossstream.spark.topics import named_topics
from crossstream.storage.commit_log import STAGED, BatchLog
from crossstream.storage.files import file_names
from crossstream.storage.log_entries import (
    BatchEntry,
    Commit,
    Publication,
    StagedFrame,
    StagedRows,
)
from crossstream.storage.manifest import checked_staged, staged_name
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Report
from crossstream.topics import TopicConnection, TopicPartition


class Publishing:
    """Publishes staged records when their batch has run, each once: to file topics, in a transaction, in tables.

    ``publisher``: of file topics, ``transactions``: of Kafka; None where sinks write by themselves. ``staging``: the
    folder of the files. ``mark``: the topic that has the mark of the transactions. ``tables``: of Delta and Iceberg.
    """

    def __init__(
        self, connection: TopicConnection | None, staging: Path, log: BatchLog, mark: str, tables: Tables
    ) -> None:
        self.publisher: Any = None
        self.transactions: Any = None
        if connection is not None and hasattr(connection, "publisher"):
            self.publisher = connection.publisher()
        if connection is not None and hasattr(connection, "transactions"):
            self.transactions = connection.transactions(partial(log.assure, 0.0))
        self.staging = staging
        self.log = log
        self.mark = mark
        self.tables = tables
        self.state = ""
        self._rows: tuple[StagedRows, ...] = ()

    def begin(self, state: str, newest: Commit, *, restarts: bool) -> None:
        """Before the first batch. ``state``: its id; ``newest``: its last batch; ``restarts``: it may be older."""
        self.state = state
        if self.transactions is not None and self.mark:
            self.transactions.begin(self.mark, state, newest.id, restarts=restarts)
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
        held = [frame[0] for frame in staged] if self.transactions is not None else []
        self.log.settle(f"{STAGED}/{name}" for name in [*held, *(name for name, _ in self._rows)])
        # Functions may give other values, and Spark split its rows otherwise, if the batch ran again.
        publication = Publication(commit, staged, self.mark, self._rows)
        note = partial(self.log.write_publication, entry, publication)
        if held:
            self._append(entry, publication, note)
            return commit
        if entry.epoch >= 0 or self._rows:
            note()
        self._append(entry, publication)
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
            return
        if publication.staged and self.publisher is None and self.transactions is None:
            return
        self.state = found.state_id
        self.log.repeat_batch(entry)
        self.log.settled()
        if not restarts:
            self.tables.written = dict(newest.tables)
        self._append(entry, publication)
        self.log.write_commit(publication.commit)

    def forget(self, staged: Iterable[StagedFrame]) -> None:
        """Removes the files of a batch that is committed."""
        rows, self._rows = [f"{STAGED}/{name}" for name, _ in self._rows], ()
        if self.transactions is not None:
            rows += [f"{STAGED}/{frame[0]}" for frame in staged]
        else:
            for path, *_ in staged:
                Path(path).unlink(missing_ok=True)
        if rows:
            self.log.root.discard(rows, ())

    def close(self) -> None:
        for one in (self.publisher, self.transactions):
            if one is not None:
                one.close()
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
        self, entry: BatchEntry, publication: Publication, note: Callable[[], None] = lambda: None
    ) -> None:
        """Publishes what is not there yet; in file topics an earlier attempt's is after ``entry.sinks``.

        ``note``: what a transaction does before it is committed.
        """
        read, staged = partial(checked_staged, self.log.root.storage(STAGED)), publication.staged
        if staged and self.transactions is not None:
            self.transactions.publish(publication.mark, self.state, entry.id, staged, read, note)
        elif staged:
            since = {
                TopicPartition(t, p): end for t, ends in entry.sinks.items() for p, end in enumerate(ends)
            }
            frames = [Staged(str(self.staging / frame[0]), *frame[1:]) for frame in staged]
            self.publisher.publish(frames, since)
        for name, sink in publication.tables:
            self.tables.write(sink, unstaged_rows(read(name)), entry.id, self.state)


def staging_of(connection: TopicConnection | None, state: StateRoot) -> Path:
    """Where records for file topics wait for their batch: with local state, else with the topics.

    All workers see both; what is on this machine of remote state they do not.
    """
    if state.is_remote and connection is not None and hasattr(connection, "staging_folder"):
        folder: Path = connection.staging_folder(state.here.name)
        return folder
    return state.here / "staged"


def mark_topic(topology: Graph, config: StreamsConfig) -> str:
    """The topic whose first partition has the mark of the transactions: one that is written, else one that is read.

    Empty if nothing is written. Raises `ConfigError` CS-201 if no topic is known by its name.
    """
    written = sorted(topic for topic, _ in named_topics(topology, config))
    if written or not any(isinstance(node, Sink) for node in topology):
        return next(iter(written), "")
    read = sorted(topic for node in topology if isinstance(node, Source) for topic in node.topics)
    if not read and config.processing_guarantee == "exactly_once":
        raise ConfigError(
            "exactly_once needs one topic that the topology names: functions and patterns name all of them",
            code="CS-201",
            next='read or write one topic by its name, or use processing_guarantee="at_least_once"',
        )
    return next(iter(read), "")
