"""Decides what becomes of state when the code changes: compares what is noted of the old topology with the new one.

    law    after the change, stores and topics hold what a first run of the new code over the same input would have
           given; and only rows whose bytes differ were sent

Two stores, or two operators, are the same if their meanings are (`planning/meanings.py`, decision 0049). `rows.py`
finds where the rows come from that the rest needs, `results.py` which sinks get rows. Rules: semantics 3.24
(docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from crossstream.application.open_state import wanted_of
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.evolution.changes import changes
from crossstream.evolution.decision import Decision, Question
from crossstream.evolution.matching import matched
from crossstream.evolution.old_state import OldState
from crossstream.evolution.results import Sinks, gone_after, results_of
from crossstream.evolution.rows import Needs, Origins
from crossstream.graph.node import Graph, lineage
from crossstream.planning.continuing import as_before, unclear, version_of
from crossstream.planning.meanings import noted
from crossstream.planning.plan import Plan
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application
from crossstream.storage.noted import NotedNode, NotedStore, NotedTopology


def decide(
    log: BatchLog,
    topology: Graph,
    plan: Plan,
    config: StreamsConfig,
    *,
    changed: Iterable[str] = (),
    every: bool = False,
    replay_from: int | None = None,
) -> Decision:
    """What is kept, rebuilt, read again, and sent. Nothing is written.

    ``changed``: names of stores, operators or sinks that are computed again with all below them, whatever their
    functions look like; ``every``: all that have a function. ``replay_from``: results of streams are sent again, from
    this time on (ms).
    Raises `StateError`: CS-713 no state here, CS-720 another application's, CS-751 rows are needed that cannot be
    had, CS-752 a name in ``changed`` is unknown, CS-753 the state does not say what it belongs to, CS-755 rows that are
    gone could not be deleted.
    """
    before = log.application()
    if before is None:
        raise refuse("CS-713", "there is no state here", folder=str(log.root))
    if before.application_id != config.application_id:
        what = f"the state folder belongs to the application {before.application_id!r}"
        raise refuse("CS-720", what, "name the state_dir of this application", folder=str(log.root))
    if not before.topology.nodes:
        what = "the state does not say which topology it belongs to: an earlier version wrote it"
        raise refuse("CS-753", what, folder=str(log.root))
    commit = log.newest()
    now = noted(plan)
    after = structs.replace(now, gone=gone_after(before.topology, now))
    wanted = wanted_of(plan, config, before, commit.partitions, after)
    same = as_before(before.topology, now)
    questions = _questions(before.topology, now)
    marked = _marked(plan.topology, now, changed, every=every)
    new = noted(plan, same, marked) if same or marked else now
    return _Deciding(
        OldState.of(log.root, before, commit, plan), plan.topology, new, Decision(before, commit, wanted)
    ).decide(questions, marked, replay_from)


@dataclass(slots=True)
class _Deciding:
    old: OldState
    topology: Graph
    new: NotedTopology
    so_far: Decision

    def decide(
        self, questions: tuple[Question, ...], marked: frozenset[str], replay_from: int | None
    ) -> Decision:
        nodes = {node.name: node for node in self.new.nodes}
        matches = matched(self.old.noted, nodes)
        sources = _sources(self.old.noted, self.new)
        fresh = _fresh(self.topology, sources)
        kept = self._kept()
        lost = [name for name in self.new.stores if name not in kept]
        empty = [name for name in lost if self._begins_empty(name, fresh)]
        rebuilt = [name for name in lost if name not in empty]
        sinks = results_of(self.topology, nodes, self.old, fresh)
        origins = Origins(self.topology, nodes, self.old, sources, marked)
        origins.find(self._needs(rebuilt, sinks, replay_from))
        return Decision(
            before=self.so_far.before,
            commit=self.so_far.commit,
            wanted=_renamed(self.so_far.wanted, sources),
            kept=kept,
            rebuilt=tuple(rebuilt),
            empty=tuple(empty),
            dropped=tuple(name for name in self.old.noted.stores if name not in kept.values()),
            rows=origins.rows,
            read_again=origins.read,
            results=sinks.results,
            events=sinks.events,
            untouched=sinks.untouched,
            gone=sinks.gone,
            replay_from=replay_from,
            sources=sources,
            begins=tuple(sorted(fresh)),
            matched=matches,
            changes=changes(
                self.old.noted, nodes, matches, marked, {(one.node, one.role) for one in questions}
            ),
            questions=questions,
        )

    def _needs(self, rebuilt: Sequence[str], sinks: Sinks, replay_from: int | None) -> Needs:
        keepers: dict[str, list[NotedStore]] = {}
        why: dict[str, str] = {}
        for one in sinks.results:
            why[one.table] = f"the rows for {one.place or one.sink} are made of it"
        for name in rebuilt:
            store = self.new.stores[name]
            keepers.setdefault(store.node, []).append(store)
            why[store.node] = f"the store {name} is filled from it"
        events = sinks.events if replay_from is not None else ()
        why |= {name: f"the events of {name} are sent again" for name in events}
        return Needs(keepers, tuple(dict.fromkeys(one.table for one in sinks.results)), events, why)

    def _kept(self) -> dict[str, str]:
        """The new stores that an old one is the same as; that of the same name comes first."""
        by_meaning: dict[str, list[str]] = {}
        for name, store in self.old.noted.stores.items():
            by_meaning.setdefault(store.meaning, []).append(name)
        return {
            name: name if name in by_meaning[store.meaning] else by_meaning[store.meaning][0]
            for name, store in self.new.stores.items()
            if store.meaning in by_meaning
        }

    def _begins_empty(self, name: str, fresh: frozenset[str]) -> bool:
        """Whether a store is filled by sources alone that are read as at a first start."""
        above = lineage(self.topology.nodes, [self.new.stores[name].node])
        sources = {node.name for node in above if node.reads_input}
        return sources <= fresh


def _renamed(wanted: Application, sources: Mapping[str, str]) -> Application:
    """With the new names of the sources that began where their topics were at the first start."""
    names = {old: new for new, old in sources.items()}
    began = tuple(sorted({names.get(name, name) for name in wanted.starts.sources}))
    return structs.replace(wanted, starts=structs.replace(wanted.starts, sources=began))


def _sources(old: NotedTopology, new: NotedTopology) -> dict[str, str]:
    """The new sources that continue an old one: the one of the same topics, or else of the same name."""
    before = [node for node in old.nodes if not node.parents]
    found: dict[str, str] = {}
    for node in new.nodes:
        likely = [one for one in before if not node.parents and _reads_same(one, node)]
        likely.sort(key=lambda one: (one.name != node.name, set(one.topics) != set(node.topics)))
        if likely:
            found[node.name] = likely[0].name
    return found


def _reads_same(one: NotedNode, other: NotedNode) -> bool:
    """Whether sources have topics in common; those of a pattern the pattern, of a DataFrame the name."""
    if one.topics and other.topics:
        return not set(one.topics).isdisjoint(other.topics)
    patterns = one.settings.get("pattern"), other.settings.get("pattern")
    return patterns[0] == patterns[1] and (patterns[0] is not None or one.name == other.name)


def _fresh(topology: Graph, sources: Mapping[str, str]) -> frozenset[str]:
    """The new sources below which there is nothing that an old one feeds: they are read as at a first start."""
    new = {node.name for node in topology if node.reads_input and node.name not in sources}
    mixed: set[str] = set()
    for node in topology:
        above = {one.name for one in lineage(topology.nodes, [node.name]) if one.reads_input}
        if not above <= new:
            mixed |= above
    return frozenset(new - mixed)


def _questions(old: NotedTopology, new: NotedTopology) -> tuple[Question, ...]:
    """The functions whose hashes cannot be compared, and that look the same: they count as they were, and are asked."""
    return tuple(
        Question(
            name,
            role,
            now.text,
            f"the hash is of {version_of(old, was)}, this is {version_of(new, now)}",
        )
        for name, role, was, now in unclear(old, new)
    )


def _marked(topology: Graph, new: NotedTopology, changed: Iterable[str], *, every: bool) -> frozenset[str]:
    """The operators that are computed again because the user says so. Raises `StateError` CS-752 for unknown names."""
    found = {node.name for node in new.nodes if every and node.functions}
    by_store = {name: store.node for name, store in new.stores.items()}
    by_store |= {store: node.name for node in topology for store in node.queryable_names}
    for name in changed:
        topics = [
            node.name for node in topology if node.shape == "none" and node.described.get("topic") == name
        ]
        known = [name] if name in topology.nodes else [by_store[name]] if name in by_store else topics
        if not known:
            there = sorted({*by_store, *topology.nodes})
            raise refuse(
                "CS-752",
                f"there is no store, operator or sink named {name!r}",
                f"name one of: {', '.join(there)}",
            )
        found.update(known)
    return frozenset(found)
