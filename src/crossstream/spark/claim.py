"""Taking up state: whose it is, whether it fits the topology, and what there is to go on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from crossstream.config import StreamsConfig
from crossstream.engine.log import Application, BatchEntry, BatchLog, Commit, Starts, check_application
from crossstream.engine.placement import partitioners
from crossstream.query.files import describe_readers
from crossstream.spark.checkpoint import Checkpoint
from crossstream.spark.frames import read_by
from crossstream.topology.graph import FrameSource
from crossstream.topology.plan import Plan


@dataclass(frozen=True, slots=True)
class Claim:
    """State that an application has taken up, as it is noted there. ``partitions``: that it is to have.

    ``repeat``: the batch that was begun after the last commit.
    """

    application: Application
    commit: Commit
    repeat: BatchEntry | None
    partitions: int


def claim(log: BatchLog, plan: Plan, config: StreamsConfig, checkpoint: Path, parallelism: int) -> Claim:
    """Notes whose state this is, and the order of the DataFrame sources; the caller holds the lock.

    Raises `StateError` and `IncompatibleStateError` where the state, or Spark's ``checkpoint``, is another's, does not
    fit or lacks files.
    """
    found = log.application()
    had = None if found is None else log.newest().partitions
    wanted = config.partitions or had or parallelism
    application = Application(
        config.application_id,
        had or wanted,
        plan.fingerprint(),
        describe_readers(plan),
        placed=tuple(sorted(partitioners(plan))),
        derived=plan.derived,
        frames=() if found is None else found.frames,
        committed=found is not None and found.committed,
        starts=Starts() if found is None else found.starts,
        by_key2=plan.by_key2,
        tables=plan.tables,
    )
    if found is not None:
        _check(log, found, application)
    log.write_application(application)
    commit = log.newest()
    frames = plan.topology.frames
    sources = {
        node.name: read_by(frames[node.name]) for node in plan.topology if isinstance(node, FrameSource)
    }
    repeat = _repeated(log, commit, is_same=set(sources) == set(application.frames))
    order = Checkpoint(checkpoint, commit, repeat).order(sources, application.frames)
    if order != application.frames:
        application = structs.replace(application, frames=order)
        log.write_application(application)
    return Claim(application, commit, repeat, wanted)


def _check(log: BatchLog, found: Application, wanted: Application) -> None:
    """Refuses state that does not fit. As long as nothing was committed there is none: all may change.

    A first batch that was begun is then planned anew, for it was one of the topology before.
    """
    fits = [(one.stores, one.placed, one.tables) for one in (found, wanted)]
    if fits[0] == fits[1] or found.application_id != wanted.application_id or log.last_commit() is not None:
        check_application(found, wanted, log.root)
    else:
        log.forget(0)


def _repeated(log: BatchLog, commit: Commit, *, is_same: bool) -> BatchEntry | None:
    """The batch that was begun; as long as nothing was committed one with rows of other sources is planned anew."""
    begun = log.begun(commit)
    if begun is None or is_same or commit.id >= 0 or begun.epoch < 0:
        return begun
    log.forget(begun.id)
    return None
