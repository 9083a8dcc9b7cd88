"""Opening state at a start: whose it is, whether it fits the topology, and which batch comes next."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from msgspec import structs

from crossstream.application.rounds import FRAMES, RowFeed
from crossstream.config import StreamsConfig
from crossstream.graph.nodes import FrameSource
from crossstream.planning.continuing import continued
from crossstream.planning.plan import Plan
from crossstream.query.files import describe_readers
from crossstream.runtime.rescaling import partitioners
from crossstream.runtime.scheduler import SourcePlanner
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, BatchEntry, Commit, Starts, check_application
from crossstream.storage.noted import NotedTopology
from crossstream.storage.root import StateRoot


@dataclass(frozen=True, slots=True)
class Claim:
    """State that an application has opened, as it is noted there. ``partitions``: that it is to have.

    ``repeat``: the batch that was begun after the last commit.
    """

    application: Application
    commit: Commit
    repeat: BatchEntry | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Found:
    """State as an application finds it: what is noted there, None in a new folder, and the last commit of a batch."""

    application: Application | None
    commit: Commit | None


def find(log: BatchLog, plan: Plan, config: StreamsConfig) -> Found:
    """What is there, which may be nothing; the caller holds the lock.

    Raises `StateError` and `IncompatibleStateError` where the state is another's, does not fit or lacks files.
    """
    found = log.application()
    if found is None:
        return Found(None, None)
    commit = log.last_commit()
    wanted = wanted_of(plan, config, found, found.partitions, found.topology)
    if not check_fit(found, wanted, log.root, committed=commit is not None):
        log.forget(0)
    return Found(found, commit)


def claim(
    log: BatchLog, plan: Plan, config: StreamsConfig, found: Found, feed: RowFeed, parallelism: int
) -> Claim:
    """Notes whose state this is, and the order of the DataFrame sources, which ``feed`` knows.

    Raises `StateError` and `IncompatibleStateError` where the checkpoint of the feed is another's, or lacks files.
    """
    log.root.storage(FRAMES)  # refuses a link
    had = None if found.application is None else (found.commit or found.application).partitions
    wanted = config.partitions or had or parallelism
    before = NotedTopology()
    if found.application is not None and found.commit is not None:
        before = found.application.topology
    topology = continued(before, plan)
    application = wanted_of(plan, config, found.application, had or wanted, topology)
    log.write_application(application)
    commit = found.commit or Commit(-1, application.partitions)
    sources = {node.name for node in plan.topology.each(FrameSource)}
    repeat = _repeated(log, commit, is_same=sources == set(application.frames))
    order = feed.order(commit, repeat, application.frames)
    if order != application.frames:
        application = structs.replace(application, frames=order)
        log.write_application(application)
    return Claim(application, commit, repeat, wanted)


def readable(repeat: BatchEntry | None, sources: SourcePlanner) -> BatchEntry | None:
    """A batch that was begun, for the sources of now; None where its records are gone: a new one is planned."""
    ranges = None if repeat is None else sources.renamed(repeat.ranges)
    return None if repeat is None or ranges is None else structs.replace(repeat, ranges=ranges)


def wanted_of(
    plan: Plan, config: StreamsConfig, found: Application | None, partitions: int, topology: NotedTopology
) -> Application:
    """What a start is to note of the application: some of it stays as it was found."""
    return Application(
        config.application_id,
        partitions,
        plan.fingerprint(),
        describe_readers(plan),
        placed=tuple(sorted(partitioners(plan))),
        derived=plan.derived,
        frames=() if found is None else found.frames,
        committed=found is not None and found.committed,
        starts=Starts() if found is None else found.starts,
        by_key2=plan.by_key2,
        tables=plan.tables,
        anywhere=plan.anywhere,
        begin_empty=plan.begin_empty,
        state_id=(found.state_id if found is not None else "") or uuid.uuid4().hex,
        topology=topology,
    )


def check_fit(found: Application, wanted: Application, root: StateRoot, *, committed: bool) -> bool:
    """Refuses state that does not fit. As long as nothing was committed everything may change: then False.

    A first batch that was begun has to be dropped in that case, for it was one of the topology before.
    """
    fits = [(one.stores, one.placed, one.tables) for one in (found, wanted)]
    if fits[0] == fits[1] or found.application_id != wanted.application_id or committed:
        check_application(found, wanted, root)
        return True
    return False


def _repeated(log: BatchLog, commit: Commit, *, is_same: bool) -> BatchEntry | None:
    """The batch that was begun; as long as nothing was committed, one with rows of other sources is dropped."""
    begun = log.begun(commit)
    if begun is None or is_same or commit.id >= 0 or begun.epoch < 0:
        return begun
    log.forget(begun.id)
    return None
