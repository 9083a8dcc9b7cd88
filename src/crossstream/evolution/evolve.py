"""A changed application takes over the state of the one before, in one commit: decided, rebuilt, sent.

Nothing is changed before the commit, and the state of before can be gone back to while it is retained (`revert.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from crossstream.api.topology import Topology
from crossstream.application.changing import finish_last, once_only
from crossstream.application.inputs import connection_of
from crossstream.application.publishing import Publishing, staging_of
from crossstream.catalog.planners import plan_topology
from crossstream.config import StreamsConfig
from crossstream.durations import to_timestamp
from crossstream.error_codes import refuse
from crossstream.evolution.committing import change_of, commit_change
from crossstream.evolution.decide import decide
from crossstream.evolution.decision import Decision
from crossstream.evolution.rebuild import MakeRounds, rebuild
from crossstream.evolution.temporary import empty, temporary_root
from crossstream.evolution.unseen import check_finished
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Commit


@dataclass(frozen=True, slots=True)
class Evolved:
    """What was decided, and what was done. ``commit``: None where nothing was: nothing differs, or it was a dry run.

    ``sent``: rows that went to each sink. ``seconds``: that it took.
    """

    decision: Decision
    commit: Commit | None = None
    sent: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def evolve(
    topology: Topology,
    config: StreamsConfig,
    make_rounds: MakeRounds,
    *,
    changed: Iterable[str] = (),
    every: bool = False,
    replay_from: int | datetime | None = None,
    dry_run: bool = False,
    tell: Callable[[BatchLog, Decision], None] | None = None,
) -> Evolved:
    """Makes the state of ``config.state_dir`` that of the topology.

    ``make_rounds``: the engine that rebuilds stores, and compares results. ``changed``: names of stores, operators or
    sinks that are computed again with all below them; ``every``: all that have a function. ``replay_from``: results of
    streams are sent again from this time on (ms, or a moment). ``dry_run``: nothing is written.
    ``tell`` is called with what was decided, before anything is done.
    Raises `StateError`: CS-713 and CS-720 no state of this application, CS-751 to CS-756 it cannot be taken over,
    CS-757 a batch of before is not finished; `SourceError` where topics that have to be read again lack records.
    """
    log = BatchLog(config.state_path, config.durable)
    if log.application() is None:
        raise refuse("CS-713", "there is no state here", folder=str(log.root))
    since = None if replay_from is None else to_timestamp(replay_from)
    names = tuple(changed)
    plan, started = plan_topology(topology), time.monotonic()

    def decided() -> Decision:
        found = decide(log, topology, plan, config, changed=names, every=every, replay_from=since)
        if tell is not None:
            tell(log, found)
        return found

    if dry_run:
        decision = decided()
        return Evolved(decision, seconds=time.monotonic() - started)
    log.lock(config.application_id, config.state_rights)
    try:
        _finish(log, topology, config)
        decision = decided()
        if decision.is_empty or decision.commit.id < 0:
            return Evolved(decision, seconds=time.monotonic() - started)
        rounds = make_rounds(topology, config)
        try:
            if decision.rebuilt or decision.results or decision.replay_from is not None:
                rounds.start()  # here, so that a session of Spark stays until all is done
            rebuilt = rebuild(decision, topology, plan, config, log.root, make_rounds)
            change = change_of(log, topology, config, decision, rebuilt)
            done = commit_change(log, topology, config, rounds, change)
        finally:
            rounds.release()
        empty(temporary_root(log.root))
        return Evolved(decision, done.commit, done.sent, time.monotonic() - started)
    finally:
        log.unlock()


def _finish(log: BatchLog, topology: Topology, config: StreamsConfig) -> None:
    """Publishes the rest of what was being published; refuses a batch that only the old code can finish."""
    careful = once_only(config)
    connection = connection_of(careful, topology, log.root)
    publishing = Publishing.of(topology, careful, connection, log, staging_of(connection, log.root))
    try:
        finish_last(publishing, topology, config)
        check_finished(log, topology, config, publishing)
    finally:
        publishing.close()
