"""Rebuilds stores of a changed topology in a temporary folder: an application that reads what the old state has.

It is the part of the topology that is needed (`part.py`), with tables as sources whose rows are stored
(`stored_rows.py`), run by the loop of any application: in bounded batches, on the engine that is given. The state it
leaves has the new stores, and the rows of the results as they are now. No topic and no table is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from crossstream.api.topology import Topology
from crossstream.application.inputs import connection_of
from crossstream.application.loop import Loop
from crossstream.application.rounds import Rounds
from crossstream.catalog.planners import plan_topology
from crossstream.config import DeadLetter, OnError, StreamsConfig
from crossstream.error_codes import refuse
from crossstream.evolution.decision import Decision, HeldRows, NewResult, Rebuilt, Result, StoredTable
from crossstream.evolution.in_databases import BroughtRows, bring, tables_of
from crossstream.evolution.part import Part, Wanted, parts_of
from crossstream.evolution.read_back import alias_of, stored_source, table_source, topic_source
from crossstream.evolution.reading import Bounded, is_part_of_state
from crossstream.evolution.reread import Reread
from crossstream.evolution.stages import BATCH, stages
from crossstream.evolution.store_names import Named, named_as
from crossstream.evolution.stored_rows import StoredRows, topic_of
from crossstream.evolution.temporary import empty, event_topics, temporary_root
from crossstream.graph.nodes import Node, Sink, Source, TableSink
from crossstream.planning.layouts import KEY_VALUE, VERSIONED, read_as
from crossstream.planning.plan import Plan
from crossstream.runtime.tables_and_topics import with_tables
from crossstream.serdes.own import alike
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.root import StateRoot

MakeRounds = Callable[[Topology, StreamsConfig], Rounds]
"""Makes the engine of an application."""


def rebuild(
    decision: Decision,
    topology: Topology,
    plan: Plan,
    config: StreamsConfig,
    root: StateRoot,
    make_rounds: MakeRounds,
) -> Rebuilt:
    """Rebuilds what was decided, in a temporary folder below the state in ``root``, which must be locked.

    Raises `StateError`: CS-754 where records are gone that would have to be read again, CS-755 where rows of a result
    cannot be read back, CS-756 where a store cannot be rebuilt.
    """
    in_databases = tables_of(decision, topology)
    wanted = _wanted(decision, topology, plan, {sink.name: topic for topic, sink in in_databases.items()})
    there = temporary_root(root)
    empty(there)
    if not (wanted.stores or wanted.results or wanted.events):
        return Rebuilt(there, Commit(-1, decision.commit.partitions), {}, {}, {}, ())
    part, named = _planned(wanted)
    brought = bring(in_databases, there, decision.commit)
    reread = Reread.of(part, decision)
    connection = _connection(decision, part, reread, config, root, brought)
    if part.events:
        events = event_topics(there)
        with closing(events.log()) as log:
            for topic in part.events.values():
                log.create_topic(topic, decision.commit.partitions)
        connection = replace(connection, events=events)
    settings = _settings(config, decision.commit.partitions)
    _seed(there, settings, reread)
    rounds = make_rounds(part.topology, settings)
    loop = Loop(part.topology, named.plan, settings, there, rounds, lambda _: None, connection=connection)
    try:
        loop.open()
        for ends in stages(loop):
            loop.run_until(ends)
        commit = loop.log.newest()
    finally:
        loop.close()
        rounds.release()
    return _Found(decision, wanted, part, named.copies, root, there, commit).rebuilt()


def _wanted(decision: Decision, topology: Topology, plan: Plan, brought: Mapping[str, str]) -> Wanted:
    """``brought``: by sink the topics with rows out of databases."""
    topics = {sink.name: sink.topic for sink in topology.each(Sink)}
    tables = {sink.name: sink for sink in topology.each(TableSink)}
    read_back: dict[str, Source] = {}
    aliases: dict[str, str] = {}
    for result in decision.results:
        sink, before = topology[result.sink], result.before
        if sink.name in brought:
            read_back[sink.name], aliases[alias_of(sink)] = topic_source(sink), brought[sink.name]
        elif result.compared == "sink" and sink.name in tables:
            read_back[sink.name] = table_source(tables[sink.name])
        elif result.compared == "sink":
            topic = topics.get(sink.name)
            if topic is None:
                what = f"what {sink.name} was sent cannot be read back, for a function names its topics"
                raise refuse("CS-755", what, **sink.where)
            read_back[sink.name], aliases[alias_of(sink)] = topic_source(sink), topic
        elif before is not None and not _has_bytes_of(sink, before, decision):
            read_back[sink.name], aliases[alias_of(sink)] = (
                stored_source(sink, before),
                topic_of(before.store),
            )
    events = () if decision.replay_from is None else decision.events
    for name in events:
        if name not in topics:
            what = f"{name} writes no topic, and results of streams are sent again to topics alone"
            raise refuse("CS-755", what, "leave replay_from out", **topology[name].where)
    results = tuple(result.sink for result in decision.results)
    stores = decision.rebuilt
    return Wanted(topology, plan, stores, results, read_back, aliases, decision.rows, events)


def _has_bytes_of(sink: Node, before: StoredTable, decision: Decision) -> bool:
    """Whether stored rows are in the serdes of the sink, each in the state partition of its key."""
    assert sink.key is not None
    assert sink.value is not None
    same = alike(before.key, sink.key) and alike(before.value, sink.value)
    is_plain = read_as(before.kind) == KEY_VALUE.kind and not before.by_second_key
    return same and is_plain and before.store not in decision.before.placed


def _planned(wanted: Wanted) -> tuple[Part, Named]:
    """The smallest part whose plan has the wanted stores as that of the whole topology has them."""
    for part in parts_of(wanted):
        named = named_as(plan_topology(part.topology), wanted.plan, wanted.stores)
        if named is not None:
            return part, named
    what = f"no part of the topology fills these stores as all of it does: {', '.join(sorted(wanted.stores))}"
    raise refuse("CS-756", what)


def _connection(
    decision: Decision,
    part: Part,
    reread: Reread,
    config: StreamsConfig,
    root: StateRoot,
    brought: BroughtRows,
) -> Bounded:
    tables = [*decision.rows.values(), *(one.before for one in decision.results if one.before is not None)]
    held = {table.store: decision.commit.versions.get(table.store, {}) for table in tables}
    together = frozenset(table.store for table in tables if read_as(table.kind) == VERSIONED.kind)
    stored = StoredRows(root.address, held, decision.commit.partitions, together)
    plain = replace(config, processing_guarantee="at_least_once")
    topics = with_tables(connection_of(plain, part.topology, root), stored, brought)
    if topics is None:
        raise unconnected(decision.before.application_id)
    with closing(topics.log()) as log:
        return Bounded(topics, reread.ends(log), part.aliases)


def _settings(config: StreamsConfig, partitions: int) -> StreamsConfig:
    """Those of the application that rebuilds: it has no page, no metrics and no dead letters."""
    quiet: dict[str, Any] = dict.fromkeys(("trigger", "idle_after", "health_port", "metrics_port", "ui_port"))
    return replace(
        config,
        **quiet,
        bootstrap_servers=None,
        topics_dir=None,
        partitions=partitions,
        max_records_per_batch=2 * BATCH,
        max_task_idle=0,
        processing_guarantee="at_least_once",
        deserialization_errors=_quietly(config.deserialization_errors),
        processing_errors=_quietly(config.processing_errors),
        on_lost_records="fail",
        retain_batches=1,
        ui_open=False,
    )


def _quietly(policy: OnError) -> OnError:
    """Bad records went to the topic of dead letters when they came first."""
    return "skip" if isinstance(policy, DeadLetter) else policy


def _seed(there: StateRoot, config: StreamsConfig, reread: Reread) -> None:
    """Notes where sources began that did not begin at the beginning of their topics."""
    log = BatchLog(there, config.durable)
    log.lock(config.application_id, config.state_rights)
    try:
        assert config.partitions is not None
        log.write_application(Application(config.application_id, config.partitions, {}, starts=reread.starts))
        log.settled()
    finally:
        log.unlock()


@dataclass(frozen=True, slots=True)
class _Found:
    """What the temporary state has."""

    decision: Decision
    wanted: Wanted
    part: Part
    copies: Mapping[str, str]
    root: StateRoot
    there: StateRoot
    commit: Commit

    def rebuilt(self) -> Rebuilt:
        commit = self.commit
        versions = {name: commit.versions.get(self.copies.get(name, name), {}) for name in self.wanted.stores}
        positions = {
            node: {topic: at for topic, at in topics.items() if not is_part_of_state(topic)}
            for node, topics in commit.positions.items()
            if node in self.part.needed
        }
        read = {node: topics for node, topics in positions.items() if topics}
        ids = {topic: id_ for topic, id_ in commit.topic_ids.items() if not is_part_of_state(topic)}
        results = tuple(map(self._result, self.decision.results))
        return Rebuilt(self.there, commit, versions, read, ids, results, self.part.events, self.copies)

    def _result(self, result: Result) -> NewResult:
        sink = self.wanted.topology[result.sink]
        assert sink.key is not None
        assert sink.value is not None
        after = StoredTable(self.part.after[result.sink], sink.key, sink.value)
        name = self.part.before.get(result.sink)
        before = None
        if name is not None:  # keys in a topic may be of another serde than those that it gets from now on
            kept = self.wanted.read_back[result.sink].store
            key = sink.key if kept is None or kept.key is None else kept.key
            before = self._here(StoredTable(name, key, sink.value))
        elif result.before is not None and result.compared == "store":
            old = self.decision.commit.versions.get(result.before.store, {})
            before = HeldRows(self.root, result.before, old)
        return NewResult(result.sink, self._here(after), before)

    def _here(self, table: StoredTable) -> HeldRows:
        return HeldRows(self.there, table, self.commit.versions.get(table.store, {}))


def unconnected(application: str) -> Exception:
    """The refusal (CS-203) of a change that needs topics, where none are connected."""
    what = f"{application} has no topics to read again, and no stored rows"
    return refuse("CS-203", what)
