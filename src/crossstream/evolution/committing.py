"""A change is a commit of its own: what state becomes, and the rows that it sends, in one batch (decision 0050).

    law    killed at any step: the state is the old one, and nothing was published; or it is the new one, when the
           next start has published the rest

1. The store files take their place in the state, where nothing knows of them yet.
2. The entry of the batch says what the state becomes. Without a publication the next start forgets it.
3. The batch runs: the rows that differ are staged. Its publication is noted, with the commit; from here on the next
   start finishes it, whichever code it has.
4. The rows are published, the commit is written, and then what the state is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from crossstream.api.topology import Topology
from crossstream.application.changing import once_only
from crossstream.application.inputs import connection_of, ends_of_written
from crossstream.application.publishing import Publishing, staging_of
from crossstream.application.rounds import Rounds
from crossstream.config import StreamsConfig
from crossstream.evolution.adopting import Adopted, adopt
from crossstream.evolution.decision import Decision, Rebuilt
from crossstream.evolution.positions import positions_after, starts_after, topic_ids_after
from crossstream.evolution.results import is_sink, place_of
from crossstream.evolution.sending import ToSend, differences, events_of, run
from crossstream.graph.nodes import FrameSink, TableSink
from crossstream.once import BatchMark
from crossstream.runtime.round import Sent
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, BatchEntry, Commit, SentTo, shown
from crossstream.task.batch import Report


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did. ``sent``: rows that went to each sink; ``seconds``: that it took."""

    commit: Commit
    sent: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be committed. ``commit``: with the number of the batch; ``was``, ``becomes``: whose state it is.

    ``files``: below the root of the state, that the commit rests on. ``results``: what is sent. ``reverts``: the change
    that is taken back. ``sent_to``: where rows go that can be sent back without the code. ``elsewhere``: sinks that
    have written other tables before the change that is taken back.
    """

    commit: Commit
    was: Application
    becomes: Application
    results: Sequence[ToSend] = ()
    files: Sequence[str] = ()
    reverts: int | None = None
    sent_to: SentTo = field(default_factory=SentTo)
    elsewhere: Collection[str] = ()


def change_of(
    log: BatchLog, topology: Topology, config: StreamsConfig, decision: Decision, rebuilt: Rebuilt
) -> Change:
    """What a decision comes to, when everything is rebuilt; store files are in their new places then."""
    before = decision.commit
    number = before.id + 1
    adopted = _adopted(log, decision, rebuilt, number)
    versions = {name: dict(one.versions) for name, one in adopted.items()}
    commit = structs.replace(
        before,
        id=number,
        positions=positions_after(topology, before, rebuilt.positions),
        topic_ids=topic_ids_after(before, rebuilt),
        versions=versions,
        time=time.time(),
        tables=_known(topology, before.tables, moved(decision.before, decision.wanted)),
        hot=_hot(decision, rebuilt),
    )
    becomes = structs.replace(
        decision.wanted,
        partitions=before.partitions,
        committed=True,
        starts=starts_after(decision.before.starts, rebuilt),
        frames=decision.before.frames,
        state_id=decision.before.state_id,
        changing=-1,
    )
    files = [name for one in adopted.values() for name in one.names]
    tables = {sink.name for sink in topology.each(TableSink)}
    results = differences(rebuilt.results, before, log.root, tables)
    if decision.replay_from is not None:
        results += events_of(rebuilt, topology, decision.replay_from)
    return Change(
        commit, decision.before, becomes, results, files, sent_to=sent_to(topology, config, results)
    )


def _hot(decision: Decision, rebuilt: Rebuilt) -> dict[str, dict[int, bool]]:
    """The keys whose rows are spread, or are to be: they go along with the stores (decision 0053)."""
    before, new = decision.commit.hot, rebuilt.commit.hot
    kept = {name: before[old] for name, old in decision.kept.items() if old in before}
    names = {name: rebuilt.copies.get(name, name) for name in decision.rebuilt}
    return {**kept, **{name: new[there] for name, there in names.items() if there in new}}


def _adopted(log: BatchLog, decision: Decision, rebuilt: Rebuilt, number: int) -> dict[str, Adopted]:
    """The stores of the new application, each in its place; those that nothing is known of have no versions."""
    found: dict[str, Adopted] = {}
    for name, old in decision.kept.items():
        versions: Mapping[int, str] = decision.commit.versions.get(old, {})
        there = Adopted(versions) if name == old else adopt(log.root, old, versions, log.root, name, number)
        found[name] = there
    for name, new in rebuilt.versions.items():
        if name in decision.rebuilt:
            found[name] = adopt(rebuilt.root, rebuilt.copies.get(name, name), new, log.root, name, number)
    return {name: one for name, one in found.items() if one.versions}


def commit_change(
    log: BatchLog, topology: Topology, config: StreamsConfig, rounds: Rounds, change: Change
) -> Changed:
    """Sends what differs, and commits; the caller holds the lock of the log."""
    started, config = time.monotonic(), once_only(config)
    connection = connection_of(config, topology, log.root)
    staging = staging_of(connection, log.root)
    publishing = Publishing.of(topology, config, connection, log, staging)
    try:
        return _commit(log, topology, config, rounds, change, publishing, started)
    finally:
        rounds.close()
        publishing.close()


def commit_alone(log: BatchLog, change: Change) -> Changed:
    """Commits a change that sends nothing; the caller holds the lock of the log."""
    started = time.monotonic()
    _begin(log, change, {})
    _end(log, change, change.commit)
    return Changed(change.commit, {}, time.monotonic() - started)


def _begin(log: BatchLog, change: Change, ends: dict[str, list[int]]) -> BatchEntry:
    """Notes what the state is to become. ``ends``: of the topics that may be written to."""
    number = change.commit.id
    log.settle(change.files)
    log.write_application(structs.replace(change.was, changing=number))
    entry = BatchEntry(number, (), time.time(), ends, shares=0)
    entry = structs.replace(entry, becomes=change.becomes, was=change.was, reverts=change.reverts)
    entry = structs.replace(entry, sent_to=change.sent_to)
    log.write_batch(entry)
    return entry


def _end(log: BatchLog, change: Change, commit: Commit) -> None:
    log.write_commit(commit)
    log.write_application(change.becomes)
    log.settled()


def _commit(
    log: BatchLog,
    topology: Topology,
    config: StreamsConfig,
    rounds: Rounds,
    change: Change,
    publishing: Publishing,
    started: float,
) -> Changed:
    number = change.commit.id
    newest = structs.replace(change.commit, id=number - 1, tables=_known(topology, change.commit.tables))
    publishing.begin(change.was.state_id, newest, restarts=config.on_lost_state == "restart")
    entry = _begin(
        log, change, _written_ends(topology, config, log) if publishing.delivery.looks_at_ends else {}
    )
    report, sent = _run(topology, config, rounds, log, change, entry)
    _deliver(topology, config, rounds, change, report, sent)
    kept = {
        store: {**change.commit.versions.get(store, {}), **names} for store, names in report.manifests.items()
    }
    commit = structs.replace(change.commit, versions={**change.commit.versions, **kept})
    commit = publishing.publish(entry, report, commit, sent)
    written = {sink: batch for sink, batch in commit.tables.items() if sink not in change.elsewhere}
    commit = structs.replace(commit, tables={**change.commit.tables, **written})
    _end(log, change, commit)
    publishing.forget(report.staged, report.frame_files)
    return Changed(commit, dict(report.rows_out), time.monotonic() - started)


def _written_ends(topology: Topology, config: StreamsConfig, log: BatchLog) -> dict[str, list[int]]:
    """Where the topics end that may be written to."""
    connection = connection_of(config, topology, log.root)
    if connection is None:
        return {}
    with closing(connection.log()) as topics:
        return ends_of_written(topology, config, topics)


def _run(
    topology: Topology,
    config: StreamsConfig,
    rounds: Rounds,
    log: BatchLog,
    change: Change,
    entry: BatchEntry,
) -> tuple[Report, Sent]:
    there = [result for result in change.results if any(result.topic.ends)]
    if not there:
        return Report(), {}
    partitions, clock = change.commit.partitions, int(entry.time * 1000)
    return run(topology, config, rounds, log.root, there, entry.id, partitions, clock)


def _deliver(
    topology: Topology, config: StreamsConfig, rounds: Rounds, change: Change, report: Report, sent: Sent
) -> None:
    """Calls the functions of the user that get rows as a DataFrame."""
    names = {node.name for node in topology.each(FrameSink) if node.function is not None}
    if names & {result.topic.sink for result in change.results}:
        mark = BatchMark(
            config.application_id, "", change.was.state_id, change.commit.id, shown(change.commit.stands)
        )
        rounds.deliver(sent, report.frame_files, mark)


def sent_to(topology: Topology, config: StreamsConfig, results: Sequence[ToSend]) -> SentTo:
    """Topics that get bytes unchanged, and where these are; not of brokers with settings, which may be secret."""
    sinks = [topology[result.topic.sink] for result in results]
    topics = {sink.name: str(sink.described["topic"]) for sink in sinks if sink.writes_bytes}
    folder = "" if config.topics_path is None else str(Path(config.topics_path).absolute())
    return SentTo(topics, folder, "" if config.kafka else config.servers or "")


def _known(topology: Topology, tables: Mapping[str, int], moved: Collection[str] = ()) -> dict[str, int]:
    """Of the tables that were written those that the application still writes."""
    sinks = {node.name for node in topology.each(TableSink)} - set(moved)
    return {sink: batch for sink, batch in tables.items() if sink in sinks}


def moved(one: Application, other: Application) -> set[str]:
    """The sinks that write to another place under the same name."""
    first, second = (
        {node.name: place_of(node) for node in each.topology.nodes if is_sink(node)} for each in (one, other)
    )
    return {name for name in first.keys() & second.keys() if first[name] != second[name]}
