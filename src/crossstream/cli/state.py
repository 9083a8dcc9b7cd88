"""`crossstream state`: inspects, verifies, rescales, backs up, restores and forks a state folder."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from crossstream import serdes
from crossstream.cli.console import counted, say, show_table
from crossstream.cli.query import headline, state_root
from crossstream.config import StreamsConfig, check_most_partitions
from crossstream.error_codes import refuse
from crossstream.errors import StateError
from crossstream.metrics.observation import stand_texts
from crossstream.query.files import FolderState, application_of, inspect_state, open_store
from crossstream.query.text import to_json
from crossstream.query.verification import Problem, Verified, verify_state
from crossstream.runtime.rescaling import rescale as cut_state
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import Copied, copy_state
from crossstream.storage.log_entries import shown
from crossstream.storage.manifest import Manifest
from crossstream.storage.root import StateRoot, root_of

NUMBERS = {"partition", "partitions", "live rows", "on disk", "size", "runs", "batch"}
TITLES = {"live": "live rows", "rows": "on disk", "bytes": "size"}
"""What the table calls the numbers of a store."""
JSON_ONLY = {"queryable", "placed", "kept"}
SPARE = ("stream time", "partitions", "runs", "kind", "batch")
"""Columns that a narrow terminal does not show, in this order."""
MOST_COUNTED = 1_000_000
"""The live rows of a store with more entries than that are not counted."""
SHOWN = 10
"""This many leftover files are named; the others are counted."""


def inspect(arguments: Namespace) -> int:
    """Prints the size of each store, or of each state partition of one."""
    root = state_root(arguments.state_dir)
    folder = inspect_state(root)
    if arguments.store is None:
        unused = {store for store in folder.application.begin_empty if not folder.stores.get(store)}
        lines = [_of_store(store, folder, root) for store in folder.stores if store not in unused]
    else:
        partitions = _named(folder, arguments.store)
        lines = [{"partition": partition, **_sizes([one])} for partition, one in partitions.items()]
    if arguments.format == "json":
        for line in lines:
            print(to_json(line))
        return 0
    commit = folder.commit
    say(headline(folder.application.application_id, commit.partitions, commit.id, commit.time))
    say(f"kept: {_batches(folder.batches)}")
    for text in stand_texts(shown(commit.stands)):
        say(text)
    lines = [{name: cell for name, cell in line.items() if name not in JSON_ONLY} for line in lines]
    _show(lines, "no stores" if arguments.store is None else f"no rows in {arguments.store}", in_lines=True)
    return 0


def verify(arguments: Namespace) -> int:
    """Checks every file of every retained batch; 1 if there is a problem."""
    started = time.monotonic()
    found = verify_state(state_root(arguments.state_dir))
    problems = [_of_problem(problem) for problem in found.problems]
    if arguments.format == "json":
        for line in [*problems, *({"leftover": name} for name in found.leftovers)]:
            print(to_json(line))
    elif problems:
        _show(problems, "")
    _say_leftovers(found.leftovers)
    _say_verified(found, time.monotonic() - started)
    return 1 if problems else 0


def rescale(arguments: Namespace) -> int:
    """Changes the number of state partitions, as the application does when it starts with another number."""
    folder = state_root(arguments.state_dir)
    check_most_partitions(arguments.partitions, {"folder": str(folder)})
    log = BatchLog(folder, durable=True)
    log.lock(application_of(folder).application_id)
    try:
        before, started = log.newest(), time.monotonic()
        if before.partitions == arguments.partitions:
            say(f"nothing to do: the state has {before.partitions} partitions already")
            return 0
        done = cut_state(log, arguments.partitions, {})
    finally:
        log.unlock()
    say(
        f"partitions: {before.partitions} -> {arguments.partitions}, {counted(len(done.commit.versions), 'store')}, "
        f"{counted(done.rows, 'row')}, {_size(done.size)}, in {time.monotonic() - started:.1f} s"
    )
    if done.commit.id >= 0:
        say(f"this is batch {done.commit.id}; older ones keep their partitions while they are retained")
    return 0


def backup(arguments: Namespace) -> int:
    """Copies the newest commit to an empty place, also while the application runs."""
    started = time.monotonic()
    _say_copied("backup", copy_state(arguments.state_dir, arguments.target, links=True), started)
    return 0


def restore(arguments: Namespace) -> int:
    """Copies a backup to an empty state folder; files are never shared with the backup."""
    started = time.monotonic()
    _say_copied("restored", copy_state(arguments.backup, arguments.state_dir, links=False), started)
    return 0


def fork(arguments: Namespace) -> int:
    """Gives another application the state of this one, from its newest commit on."""
    started, owner = time.monotonic(), arguments.application_id
    StreamsConfig(application_id=owner)  # refuses a name that is not valid
    if application_of(root_of(arguments.state_dir)).application_id == owner:
        what = f"the state belongs to {owner!r} already: two applications need two names"
        step = "give another --application-id"
        raise refuse("CS-720", what, step, folder=str(state_root(arguments.state_dir)))
    done = copy_state(arguments.state_dir, arguments.new_state_dir, links=True, owner=owner)
    _say_copied(f"state of {owner}", done, started)
    return 0


def _say_copied(what: str, done: Copied, started: float) -> None:
    copied = done.files - done.linked
    how = [
        f"{counted(number, 'file')} {verb}" for number, verb in ((done.linked, "linked"), (copied, "copied"))
    ]
    said = ", ".join(text for text, number in zip(how, (done.linked, copied), strict=True) if number)
    say(
        f"{what}: {done.application.application_id} after batch {done.commit.id}, {said or 'no rows'}, "
        f"{_size(done.size)}, in {time.monotonic() - started:.1f} s"
    )


def _named(folder: FolderState, name: str) -> dict[int, Manifest]:
    if name in folder.stores:
        return folder.stores[name]
    what = f"the state has no store {name!r}"
    raise refuse("CS-710", what, f"its stores are: {', '.join(folder.stores) or 'none'}")


def _of_store(name: str, folder: FolderState, root: StateRoot) -> dict[str, Any]:
    application = folder.application
    sizes = _sizes(folder.stores[name].values())
    kind, key, *value, _ = application.stores[name].split("/")
    return {
        "store": name,
        "kind": kind,
        "key": key,
        "value": "/".join(value),
        "partitions": folder.commit.partitions,
        "live": _live_rows(name, folder, root) if sizes["rows"] <= MOST_COUNTED else None,
        **sizes,
        "queryable": name in application.readers,
        "placed": "by partitioner" if name in application.placed else "by hash",
        "kept": folder.batches,
    }


def _live_rows(name: str, folder: FolderState, root: StateRoot) -> int | None:
    """The rows that a query sees; None of a store that cannot be queried, or of a batch that is gone meanwhile."""
    public = [one for one, readable in folder.application.readers.items() if readable.store == name]
    if not public or folder.commit.id < 0:
        return None
    raw = {"key": serdes.bytes(), "value": serdes.bytes()}
    with suppress(StateError):
        return open_store(root, public[0], folder.commit.id, raw).count()
    return None


def _sizes(manifests: Collection[Manifest]) -> dict[str, Any]:
    """Of rows, also those that were replaced or deleted; ``batch``: the last one that changed something."""
    return {
        "rows": sum(one.rows for one in manifests),
        "bytes": sum(one.size for one in manifests),
        "runs": sum(1 for one in manifests for level in one.levels if level.segments),
        "stream_time": max((one.stream_time for one in manifests if one.stream_time >= 0), default=None),
        "batch": max((one.batch for one in manifests), default=None),
    }


def _of_problem(problem: Problem) -> dict[str, Any]:
    return {
        "store": problem.store,
        "partition": problem.partition,
        "batches": list(problem.batches),
        "file": problem.file,
        "problem": problem.what,
    }


def _show(lines: Sequence[Mapping[str, Any]], otherwise: str, *, in_lines: bool = False) -> None:
    """Prints lines as a table, or ``otherwise`` if there are none. ``in_lines``: each row in one line."""
    if not lines:
        say(otherwise)
        return
    names = list(lines[0])
    head = [TITLES.get(name, name.replace("_", " ")) for name in names]
    cells = [[_cell(name, line[name]) for name in names] for line in lines]
    spare = [name for name in SPARE if name in head] if in_lines else None
    show_table(head, cells, [name in NUMBERS for name in head], spare=spare)


def _cell(name: str, value: Any) -> str:
    if name == "batches":
        return _batches(value) if value else "-"
    if value is None:
        return "-"
    if name == "bytes":
        return f"{value / 1e3:,.1f} kB" if value < 1e6 else f"{value / 1e6:,.1f} MB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name in ("live", "rows"):
        return f"{value:,}"
    if name == "stream_time":
        return _time_text(value)
    return str(value)


def _time_text(milliseconds: int) -> str:
    """An ISO time; the number itself for years that `datetime` does not have."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds") + "Z"


def _batches(ids: Sequence[int]) -> str:
    """The ids in short: the first and the last if they follow each other."""
    if not ids:
        return "no batch"
    if len(ids) == 1:
        return f"batch {ids[0]}"
    whole = ids[-1] - ids[0] == len(ids) - 1
    return f"batches {ids[0]} to {ids[-1]}" if whole else f"batches {', '.join(map(str, ids))}"


def _say_leftovers(names: Sequence[str]) -> None:
    if not names:
        return
    say(
        f"{counted(len(names), 'file')} of no batch, left over or being written; the next start deletes leftovers:"
    )
    for name in names[:SHOWN]:
        say(f"  {name}")
    if len(names) > SHOWN:
        say(f"  and {len(names) - SHOWN} more")


def _say_verified(found: Verified, seconds: float) -> None:
    checked = (counted(found.files, "file"), _size(found.size), counted(found.rows, "row"))
    result = counted(len(found.problems), "problem") if found.problems else "no problems"
    say(f"{_batches(found.batches)}: {', '.join(checked)} checked in {seconds:.1f} s, {result}")


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
