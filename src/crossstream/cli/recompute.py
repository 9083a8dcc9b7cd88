"""`crossstream why`, `verify` and `shadow`: results computed again from the topics, in this process, without Spark."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.cli.console import counted, say, show_table
from crossstream.cli.loading import Loaded, load, no_topics, with_topics_of
from crossstream.cli.options import refuse_without, wrong_usage
from crossstream.cli.query import as_text, state_root
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.planning.plan import Plan
from crossstream.query.as_of import batch_at
from crossstream.query.files import open_store
from crossstream.query.store import StoreReader, store_named
from crossstream.query.text import parse_key, to_json, to_plain
from crossstream.recompute.partings import Name
from crossstream.recompute.shadow import compare_topics
from crossstream.recompute.suspects import suspects
from crossstream.recompute.verify import Compared, Verified, verify_results
from crossstream.recompute.why import why as find_why
from crossstream.serdes.windowed import Windowed
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Settings, settings_of
from crossstream.topics import TopicConnection

NOT_EXACT = 3
"""Exit code of an answer of `why` that may have too many records, or lack some."""


def verify(arguments: Namespace) -> int:
    """Compares the stores of a state with what the topics give; 1 if rows differ."""
    loaded, started = load(arguments.file), time.monotonic()
    root, plan = state_root(arguments.state_dir), plan_topology(loaded.topology)
    connection, settings = inputs_of(loaded, arguments, root)
    found = verify_results(
        root,
        plan,
        connection,
        settings,
        sample=arguments.sample,
        as_of=batch_at(BatchLog(root), arguments.as_of),
    )
    for note in found.notes:
        say(f"note: {note}")
    for store in found.stores:
        _show(store, arguments, "state", "computed")
    _say_suspects(plan, found)
    if not found.stores:
        say("no queryable stores: name them with Materialized(store=…)")
    rows = sum(store.rows for store in found.stores)
    unknown = sum(store.unverifiable for store in found.stores)
    say(
        f"batch {found.batch}: {counted(found.records, 'record')} read, {counted(rows, 'row')} compared in "
        f"{time.monotonic() - started:.1f} s: {_differ(found.different)}"
        + (f", {counted(unknown, 'row')} cannot be verified" if unknown else "")
    )
    return 1 if found.different else 0


def _say_suspects(plan: Plan, found: Verified) -> None:
    """Says which functions may give other results than those that are stored."""
    different = [Name("store", one.name) for one in found.stores if one.different]
    same = [Name("store", one.name) for one in found.stores if not one.different]
    operators = suspects(plan, different, same)
    if operators:
        say(f"a function gives other results than those that are stored, of: {', '.join(operators)}")


def shadow(arguments: Namespace) -> int:
    """Compares a topic that the application would write with that of another application; 1 if rows differ."""
    loaded, started = load(arguments.file), time.monotonic()
    connection, settings = inputs_of(loaded, arguments)
    if connection is None:
        raise no_topics(loaded.file)
    chosen = getattr(arguments, "as")
    found = compare_topics(
        plan_topology(loaded.topology),
        connection,
        arguments.against,
        arguments.topic,
        settings,
        as_table=None if chosen is None else chosen == "table",
    )
    _show(found.found, arguments, found.against, "ours")
    kind = "the last record of each key" if found.as_table else "all records of each key"
    say(
        f"{found.against} ({counted(found.their_records, 'record')}) and {found.topic} "
        f"({counted(found.our_records, 'record')}), {kind}: {counted(found.found.rows, 'row')} compared in "
        f"{time.monotonic() - started:.1f} s: {_differ(found.found.different)}"
    )
    return 1 if found.found.different else 0


def why(arguments: Namespace) -> int:
    """Shows what made a row; 1 if there is no such row, 3 if the answer is not exact."""
    words = arguments.named
    if len(words) not in (3, 4):
        raise wrong_usage(
            f"why takes a state folder, a store and a key, not {' '.join(words)!r}",
            "write: crossstream why app.py STATE_DIR STORE KEY",
        )
    *file, state_dir, name, text = words
    root = state_root(state_dir)
    if not file:
        return _course(root, name, text, arguments)
    loaded = load(file[0])
    plan = plan_topology(loaded.topology)
    store = store_named(plan, name)
    serde = loaded.topology[name].key if store is None and name in loaded.topology.nodes else None
    key = parse_key(serde if store is None else store.key, text)
    if arguments.start is not None:
        key = _window(open_store(root, name, registry=arguments.registry), key, arguments.start)
    connection, settings = inputs_of(loaded, arguments, root)
    found = find_why(
        root, plan, connection, name, key, settings, as_of=batch_at(BatchLog(root), arguments.as_of)
    )
    print(to_json(found.to_dict()) if arguments.format == "json" else found)
    return 1 if found.value is None else NOT_EXACT if found.is_inexact else 0


def _course(root: StateRoot, name: str, text: str, arguments: Namespace) -> int:
    """Without the application's functions: what the row was after each retained batch."""
    refuse_without("the application's file", "write: why app.py STATE_DIR STORE KEY", arguments, "start")
    rows: list[tuple[str, str]] = []
    log = BatchLog(root)
    wanted = batch_at(log, arguments.as_of)
    batches = [one for one in log.commits() if wanted in (None, one)]
    for batch in batches:
        store = open_store(root, name, batch, registry=arguments.registry)
        key = parse_key(store.key, text)
        value = store.get(key) if store.by_time is None else store.fetch(key)
        shown = "-" if value in (None, []) else as_text(to_plain(value))
        if not rows or rows[-1][1] != shown:
            rows.append((str(batch), shown))
    if not rows:
        what = "there is no batch yet" if arguments.as_of is None else f"batch {arguments.as_of} is not kept"
        step = "ask for a batch that `crossstream state inspect` shows as kept"
        raise refuse("CS-713", what, step, folder=str(root))
    if arguments.format == "json":
        for number, value in rows:
            print(to_json({"batch": int(number), "value": value}))
    else:
        show_table(("batch", text), rows, (True, False))
    say(
        "the state has no functions: for the input records, name the application's file: "
        "crossstream why app.py STATE_DIR STORE KEY"
    )
    return 1 if rows[-1][1] == "-" else 0


def _window(store: StoreReader, key: Any, start: int) -> Windowed:
    """The window or session of a key that begins at ``start``."""
    if store.kind not in ("window", "session") or store.by_time is None:
        raise wrong_usage("--start works with stores of windows and sessions only", "drop it")
    places = store.by_time.places(store.fetch(key))
    for place in places:
        if place[0] == start and len(place) == 2:
            return Windowed(key, *place)
    starts = ", ".join(str(place[0]) for place in places)
    raise wrong_usage(
        f"no window of this key begins at {start}", f"choose one of: {starts or 'there is none'}"
    )


def inputs_of(
    loaded: Loaded, arguments: Namespace, state: StateRoot | None = None
) -> tuple[TopicConnection | None, Settings]:
    """Where the topics are, and what is done with bad records: of the file's ``config``, and of the options.

    ``state``: where tables that are read again have their logs; None: where the file's ``config`` has the state.
    """
    config = with_topics_of(loaded.config or StreamsConfig(application_id="recompute"), arguments)
    connection = connection_of(config, loaded.topology, state)
    if connection is None and any(node.topics for node in loaded.topology):
        raise no_topics(loaded.file)
    return connection, settings_of(config)


def _show(compared: Compared, arguments: Namespace, theirs: str, ours: str) -> None:
    """Prints the rows of a store that differ."""
    rows = compared.differences[: arguments.max]
    if arguments.format == "json":
        for row in rows:
            line = {"store": compared.name, "key": row.key, "theirs": row.theirs, "ours": row.ours}
            print(to_json({name: to_plain(value) for name, value in line.items()}))
    elif rows:
        head = ("store", "key", theirs, ours)
        cells = [
            (compared.name, _cell(row.key), *_sides(row.theirs, row.ours, row.their_time, row.our_time))
            for row in rows
        ]
        show_table(head, cells)
    different = compared.different + compared.unverifiable
    if different > len(rows):
        say(f"{compared.name}: {counted(different - len(rows), 'more row')} that differ")
    if different:
        for note in compared.notes:
            say(f"note: {compared.name}: {note}")


def _sides(theirs: Any, ours: Any, their_time: int | None, our_time: int | None) -> Sequence[str]:
    """Both values; with their timestamps, where nothing else differs."""
    cells = (_cell(theirs), _cell(ours))
    if cells[0] == cells[1] and their_time != our_time:
        return f"{cells[0]} at {their_time}", f"{cells[1]} at {our_time}"
    return cells


def _cell(value: Any) -> str:
    return "-" if value is None else as_text(to_plain(value))


def _differ(rows: int) -> str:
    return "all are the same" if rows == 0 else f"{counted(rows, 'row')} differ{'s' if rows == 1 else ''}"
