"""A change is taken back: the state of before is there again, and its rows are sent again, in one commit more."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from msgspec import structs

from crossstream.api.topology import Topology
from crossstream.application.local import LocalRounds
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.evolution.committing import Change, Changed, commit_alone, commit_change, moved
from crossstream.evolution.rebuild import MakeRounds
from crossstream.evolution.sending import RAW, ToSend, sent_rows
from crossstream.graph.nodes import Node, Sink
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import SENT, Application, BatchEntry, Commit
from crossstream.storage.root import Place


@dataclass(frozen=True, slots=True)
class Code:
    """The code whose state it is now: it has the sinks that the change has written to."""

    topology: Topology
    config: StreamsConfig
    make_rounds: MakeRounds


def revert(
    state_dir: Place,
    code: Code | None = None,
    *,
    keep_results: bool = False,
    topics: StreamsConfig | None = None,
) -> Changed:
    """Goes back to the state before the newest change, and sends back the rows that the change has sent.

    ``code``: needed where a function of the user decides where rows go, or a table gets them. ``topics``: settings that
    say where the topics are, if not where the change has written them. ``keep_results``: goes back although batches
    came after the change; results stay as they are until their inputs change, and what came since is read again.
    Raises `StateError`: CS-713 no state here, CS-720 it is in use, CS-757 a batch is not finished, CS-758 there is no
    change to take back, or batches came after it, CS-759 the state of before is not retained.
    """
    log = BatchLog(state_dir, durable=code is None or code.config.durable)
    application = log.application()
    if application is None:
        raise refuse("CS-713", "there is no state here", folder=str(log.root))
    log.lock(application.application_id)
    try:
        newest = log.newest()
        _check_finished(log, newest)
        if keep_results:
            return commit_alone(log, _back(log, newest, _last_change(log)))
        entry = _change(log, newest.id)
        if entry is None:
            what = f"batch {newest.id} is no change of the application, and the newest one"
            raise refuse("CS-758", what, folder=str(log.root))
        change = _back(log, newest, entry)
        if not any(store.startswith(SENT) for store in newest.versions):
            return commit_alone(log, change)
        return _send(log, change, newest, code or _noted_code(log, entry, newest, topics))
    finally:
        log.unlock()


def _noted_code(log: BatchLog, entry: BatchEntry, newest: Commit, topics: StreamsConfig | None) -> Code:
    """What the change has noted of its sinks: topics that get bytes unchanged, and where these are."""
    noted, was = entry.sent_to, log.application()
    assert was is not None
    sinks = [store.removeprefix(SENT) for store in newest.versions if store.startswith(SENT)]
    others = [sink for sink in sinks if sink not in noted.topics]
    if others:
        what = (
            f"the change has sent rows to {', '.join(others)}, and only the application can send others there"
        )
        raise refuse("CS-758", what, "name the file of the application: --app app.py", folder=str(log.root))
    if topics is None and not (noted.topics_dir or noted.servers):
        what = "the change has sent rows to Kafka with settings of its own, which are not in the state"
        step = "name the file of the application: --app app.py; or the brokers: --bootstrap-servers and --kafka-config"
        raise refuse("CS-758", what, step, folder=str(log.root))
    folder, servers, name = noted.topics_dir or None, noted.servers or None, was.application_id
    place = topics or StreamsConfig(application_id=name, topics_dir=folder, bootstrap_servers=servers)
    config = replace(
        place, application_id=name, state_dir=log.root.address, engine="local", durable=log.durable
    )
    nodes: dict[str, Node] = {
        sink: Sink(name=sink, shape="none", key=RAW, value=RAW, topic=noted.topics[sink]) for sink in sinks
    }
    return Code(Topology(nodes), config, lambda topology, config: LocalRounds())


def _send(log: BatchLog, change: Change, newest: Commit, code: Code) -> Changed:
    found = sent_rows(log.root, newest)
    sinks = [one.sink for one in found]
    unknown = [sink for sink in sinks if sink not in code.topology.nodes]
    if unknown:
        what = f"the change has sent rows to {', '.join(unknown)}, which the topology does not have"
        raise refuse("CS-758", what, "name the file with the code of the change", folder=str(log.root))
    results = [ToSend(one, *_serdes(code.topology, one.sink)) for one in found]
    rounds = code.make_rounds(code.topology, code.config)
    try:
        return commit_change(log, code.topology, code.config, rounds, replace(change, results=results))
    finally:
        rounds.release()


def _serdes(topology: Topology, sink: str) -> tuple[EngineSerde, EngineSerde]:
    """Those that the rows of a sink are kept in."""
    node = topology[sink]
    assert node.key is not None
    assert node.value is not None
    return node.key, node.value


def _check_finished(log: BatchLog, newest: Commit) -> None:
    begun = log.begun(newest)
    if begun is None:
        return
    if begun.becomes is not None and begun.publication is None:
        log.forget(begun.id)  # a change that nothing was seen of
        return
    what = f"batch {begun.id} was begun and not committed"
    step = "start the application once: it finishes the batch"
    raise refuse("CS-757", what, step, folder=str(log.root))


def _change(log: BatchLog, number: int) -> BatchEntry | None:
    """The entry of a batch, if it is a change; None of others, and of one that has taken back a change."""
    try:
        entry = log.batch(number)
    except FileNotFoundError:  # another number of partitions
        return None
    return entry if entry.was is not None and entry.reverts is None else None


def _last_change(log: BatchLog) -> BatchEntry:
    for number in reversed(log.commits()):
        entry = _change(log, number)
        if entry is not None:
            return entry
    raise refuse("CS-758", "no change of the application is retained", folder=str(log.root))


def _back(log: BatchLog, newest: Commit, entry: BatchEntry) -> Change:
    """What state and positions are to be again; tables keep what they say of batches."""
    if entry.id - 1 not in log.commits():
        what = f"batch {entry.id} changed the application, and the one before is not retained"
        raise refuse("CS-759", what, folder=str(log.root))
    before = log.commit(entry.id - 1)
    was = log.application()
    assert was is not None
    assert entry.was is not None
    if newest.epoch != before.epoch:
        raise _rows_of_frames(log)
    elsewhere = moved(was, entry.was)
    tables = {sink: batch for sink, batch in newest.tables.items() if sink not in elsewhere}
    tables |= {sink: batch for sink, batch in before.tables.items() if sink in elsewhere}
    commit = structs.replace(
        before,
        id=newest.id + 1,
        time=time.time(),
        tables=tables,
        versions={store: names for store, names in before.versions.items() if not store.startswith(SENT)},
    )
    becomes: Application = structs.replace(
        entry.was, changing=-1, committed=True, partitions=before.partitions, state_id=was.state_id
    )
    return Change(commit, structs.replace(was, changing=-1), becomes, reverts=entry.id, elsewhere=elsewhere)


def _rows_of_frames(log: BatchLog) -> CrossStreamError:
    what = "rows of DataFrames came after the change, and cannot be read again"
    step = "run `crossstream evolve` with the code of before"
    return refuse("CS-758", what, step, folder=str(log.root))
