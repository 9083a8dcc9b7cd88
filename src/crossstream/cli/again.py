"""`crossstream replay`: runs a batch of the past again, in this process; `crossstream state bundle` packs one."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossstream.api.topology import Topology
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.cli.console import counted, is_terminal, say, show_error, show_table
from crossstream.cli.loading import Loaded, load, no_topics, with_topics_of
from crossstream.cli.options import refuse_without
from crossstream.cli.query import as_text, clock, state_root
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.lakehouse.connection import as_begun
from crossstream.query.text import from_bytes, to_json, to_plain
from crossstream.recompute.about_key import Line, records_about, rows_about, sent_about
from crossstream.recompute.again import Rerun, run_past
from crossstream.recompute.bundle_format import SUFFIX
from crossstream.recompute.bundle_packing import Packing
from crossstream.recompute.bundles import is_bundle, open_bundle
from crossstream.recompute.committed_results import Committed, committed_results, written_topics
from crossstream.recompute.inputs import check_same_topics, object_of
from crossstream.recompute.parted_records import compare_results, serdes_of_topic
from crossstream.recompute.parted_rows import compare_stores
from crossstream.recompute.partings import Found, together
from crossstream.recompute.past_batch import PastBatch, past_batch
from crossstream.recompute.stops import with_stops
from crossstream.recompute.suspects import suspects
from crossstream.recompute.unsteady import unsteady
from crossstream.records import decode_headers
from crossstream.runtime.delivery import DeliveringConnection
from crossstream.task.batch import Settings, settings_of
from crossstream.topics import RangeReader, is_elsewhere


def main(arguments: Namespace) -> int:
    """Runs a batch again; 1 if it gives something else than it did."""
    if not arguments.pdb:
        refuse_without("--pdb", "add --pdb, or drop it", arguments, "at")
    loaded, started = load(arguments.file), time.monotonic()
    config = loaded.config or StreamsConfig(application_id="replay")
    with ExitStack() as stack:
        source = _source(loaded, config, arguments, stack)
        say(_headline(source.past))
        lines: list[Line] = []
        if arguments.key is not None:
            serdes = {node.name: (node.key, node.value) for node in loaded.topology}
            lines += records_about(source.past, serdes, source.reader, arguments.key)
        rerun = _run(source, loaded.topology, arguments, lines)
        if rerun is None:
            return 1
        if arguments.output is not None:
            _write(rerun, Path(arguments.output).expanduser())
        found = together(compare_stores(rerun), compare_results(rerun, source.committed(rerun)))
        if arguments.key is not None:
            lines += [*rows_about(rerun, arguments.key), *sent_about(rerun, arguments.key)]
            _show_lines(lines, arguments)
        else:
            _show_summary(rerun, found, arguments)
        return _verdict(rerun, found, loaded.topology, source, arguments, time.monotonic() - started)


def _run(source: Source, topology: Topology, arguments: Namespace, lines: Iterable[Line]) -> Rerun | None:
    """Runs the batch; None if it was left in the debugger, or has failed there."""

    if not arguments.pdb:
        return source.run(topology)
    from crossstream.cli.debugging import Stops

    stops = Stops(arguments.key, frozenset(to_json(line.value) for line in lines if line.value is not None))
    watched = with_stops(topology, stops.called, arguments.at)
    try:
        rerun = source.run(watched)
    except CrossStreamError as error:
        if not stops.has_quit:
            show_error(error)
            stops.failed(error)
            return None
    if stops.has_quit:
        say("left the debugger: nothing is compared")
        return None
    if not stops.has_stopped:
        say(f"no function was called{'' if arguments.key is None else f' for the key {arguments.key!r}'}")
    return rerun


@dataclass(frozen=True, slots=True)
class Source:
    """Where a batch, and its records, come from: a state folder and topics, or a bundle.

    ``there``: what a bundle says of its results.
    """

    past: PastBatch
    reader: RangeReader
    counts: dict[str, int]
    settings: Settings
    connection: DeliveringConnection | None = None
    there: Committed | None = None

    def run(self, topology: Topology) -> Rerun:
        """Runs the batch with a topology."""
        return run_past(self.past, plan_topology(topology), self.reader, self.counts, self.settings)

    def committed(self, rerun: Rerun) -> Committed | None:
        """The results that were committed, as far as it is known."""
        if self.connection is None:
            return self.there
        ours = {owner.topic for owner in rerun.results.parts}
        return committed_results(
            self.past, self.connection, written_topics(rerun.plan.topology, self.past, ours)
        )


def _source(loaded: Loaded, config: StreamsConfig, arguments: Namespace, stack: ExitStack) -> Source:
    place, settings = arguments.state_dir, settings_of(config)
    if is_bundle(place):
        bundle = stack.enter_context(open_bundle(Path(place).expanduser(), arguments.batch))
        return Source(bundle.past, bundle.reader, dict(bundle.counts), settings, None, bundle.results)
    root = state_root(place)
    past = past_batch(root, arguments.batch)
    connection = connection_of(with_topics_of(config, arguments), loaded.topology, root)
    if connection is None:
        raise no_topics(loaded.file)
    connection = as_begun(connection, past.application.starts.positions)
    log = stack.enter_context(closing(connection.log()))
    check_same_topics(log, past.after or past.before, sorted({span.topic for span in past.entry.ranges}))
    reader = stack.enter_context(closing(connection.reader()))
    return Source(past, reader, dict(log.topics()), settings, connection)


def _headline(past: PastBatch) -> str:
    after = "on empty state" if past.before.id < 0 else f"after batch {past.before.id}"
    done = (
        "" if past.after is not None else "; it was begun and not committed: there is nothing to compare with"
    )
    records = counted(sum(span.end - span.start for span in past.entry.ranges), "record")
    return f"batch {past.number}, {clock(past.entry.time)}, {after}, partitions: {past.partitions}, {records}{done}"


# -- what is shown ---------------------------------------------------------------------------------------------


def _show_summary(rerun: Rerun, found: Found, arguments: Namespace) -> None:
    read: dict[str, int] = {}
    for span in rerun.past.entry.ranges:
        read[span.topic] = read.get(span.topic, 0) + span.end - span.start
    rows = [("read", name, count) for name, count in read.items()]
    for kind, step in (("store", "written"), ("topic", "sent")):
        rows += [(step, one.name, count) for one, count in found.rows.items() if one.kind == kind]
    rows += [("sent", name, rerun.report.rows_out.get(name, 0)) for name in sorted(rerun.sent)]
    if arguments.format == "json":
        for step, name, count in rows:
            print(to_json({"step": step, "name": name, "rows": count}))
    elif rows:
        cells = [(step, name, f"{count:,}") for step, name, count in rows]
        show_table(("", "topic or store", "rows"), cells, (False, False, True))


def _show_lines(lines: Iterable[Line], arguments: Namespace) -> None:
    found = list(lines)
    if arguments.format == "json":
        for line in found:
            print(
                to_json({name: to_plain(getattr(line, name)) for name in ("step", "place", "key", "value")})
            )
    elif found:
        cells = [(one.step, one.place, as_text(to_plain(one.key)), _cell(one.value)) for one in found]
        show_table(("", "topic or store", "key", "value"), cells)
    else:
        say(f"the batch has nothing about {arguments.key!r}")


def _verdict(
    rerun: Rerun, found: Found, topology: Topology, source: Source, arguments: Namespace, seconds: float
) -> int:
    for note in found.notes:
        say(f"note: {note}")
    number = rerun.past.number
    if rerun.past.after is None:
        say(f"batch {number} ran to its end in {seconds:.1f} s")
        return 0
    if found.is_same:
        same = "what could be compared is the same" if found.notes else "it gives what it gave"
        say(f"batch {number} run again in {seconds:.1f} s: {same}, byte for byte")
        return 0
    _show_partings(found, arguments)
    for name, count in found.different.items():
        say(f"{name}: {counted(count, 'row')} differ{'s' if count == 1 else ''}")
    names = suspects(rerun.plan, found.different.keys(), found.rows.keys() - found.different.keys())
    say(f"batch {number} run again in {seconds:.1f} s: it gives something else than it did")
    each_time = unsteady(topology, source.run)
    for one in each_time:
        say(f"{one.operator}: a function that gives other results each time: {one.first}, then {one.second}")
    if not each_time:
        say(_because(names))
    return 1


def _because(names: list[str]) -> str:
    """Why results differ, where no function gives others each time. ``names``: the operators that may be why."""
    if not names:
        return "no Python function is in between: an expression was changed since, or a library is of another version"
    since = "was changed since, or depends on more than its arguments"
    if len(names) == 1:
        return f"{names[0]}: its function gives other results than it did: it {since}"
    return f"a function of one of these operators gives other results than it did: it {since}: {', '.join(names)}"


def _show_partings(found: Found, arguments: Namespace) -> None:
    shown = found.partings[: arguments.max]
    if arguments.format == "json":
        for one in shown:
            line = {one.place.kind: one.place.name, "key": one.key, "theirs": one.theirs, "ours": one.ours}
            print(to_json({name: to_plain(value) for name, value in line.items()}))
    else:
        if not is_terminal(sys.stdout):
            print()
        cells = [(str(one.place), _cell(one.key), _cell(one.theirs), _cell(one.ours)) for one in shown]
        show_table(("topic or store", "key", "committed", "now"), cells)
    more = sum(found.different.values()) - len(shown)
    if more:
        say(f"{counted(more, 'more row')} that differ: --max shows more")


def _cell(value: Any) -> str:
    return "-" if value is None else as_text(to_plain(value))


def _write(rerun: Rerun, file: Path) -> None:
    """The results as JSON lines."""
    count = 0
    try:
        with file.open("w", encoding="utf-8") as opened:
            for line in _lines(rerun):
                opened.write(f"{line}\n")
                count += 1
    except OSError as error:
        what = f"the results cannot be written: {error.strerror}"
        raise refuse(
            "CS-270", what, "name a file that can be written after --output", file=str(file)
        ) from error
    say(f"{counted(count, 'result')} written to {file}")


def _lines(rerun: Rerun) -> Iterator[str]:
    for owner, records in rerun.results.records():
        key, value = serdes_of_topic(rerun, owner.topic)
        for row in records.to_pylist():
            line = {
                "topic": owner.topic,
                "key": to_plain(object_of(key, row["key"])),
                "value": to_plain(object_of(value, row["value"])),
                "timestamp": row["timestamp"],
                "partition": owner.partition,
            }
            if row["headers"] is not None:
                pairs = decode_headers(row["headers"])
                line["headers"] = [[name, None if one is None else from_bytes(one)] for name, one in pairs]
            yield to_json(line)


# -- bundles ---------------------------------------------------------------------------------------------------


def bundle(arguments: Namespace) -> int:
    """Packs a batch into one file, with which it can be run again elsewhere."""
    started, root = time.monotonic(), state_root(arguments.state_dir)
    packing = Packing.of(root, arguments.batch)
    loaded = None if arguments.app is None else load(arguments.app)
    connection = _topics_of(packing.past, loaded, arguments)
    records = counted(sum(span.end - span.start for span in packing.past.entry.ranges), "record")
    say(f"packing batch {arguments.batch}: {packing.size / 1e6:.1f} MB of state, {records}")
    owner = packing.past.application.application_id
    target = Path(arguments.output or f"{owner}-{arguments.batch}{SUFFIX}").expanduser()
    packed = packing.write(target, connection, None if loaded is None else loaded.topology)
    say(
        f"{target}: {packed.size / 1e6:.1f} MB, in {time.monotonic() - started:.1f} s; run it with: "
        f"crossstream replay app.py {target} --batch {arguments.batch}"
    )
    return 0


def _topics_of(past: PastBatch, loaded: Loaded | None, arguments: Namespace) -> DeliveringConnection | None:
    config = StreamsConfig(application_id="bundle") if loaded is None else loaded.config
    config = with_topics_of(config or StreamsConfig(application_id="bundle"), arguments)
    connection = connection_of(config, () if loaded is None else loaded.topology, past.root)
    elsewhere = sorted({span.topic for span in past.entry.ranges if is_elsewhere(span.topic)})
    if elsewhere:
        what = (
            f"a bundle cannot hold rows of {', '.join(elsewhere)}: they are rows of a table, and no records"
        )
        step = "run the batch again where its state is: crossstream replay app.py STATE_DIR --batch N"
        raise refuse("CS-715", what, step, folder=str(past.root))
    if connection is None and past.entry.ranges:
        what = "the batch read topics, and no option says where they are"
        raise refuse(
            "CS-203", what, "give --topics-dir, --bootstrap-servers, or the application: --app app.py"
        )
    return connection
