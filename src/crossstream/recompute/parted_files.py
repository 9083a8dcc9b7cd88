"""Results that waited in files until they were published: records for a transaction of Kafka, and rows of tables.

The files are gone. Their names are in the log, and have their checksums: so it is known whether what comes now is the
same, byte for byte, and not which rows differ. A task that reads topics may get the same records in other pieces, of
which other bytes are made; then only their number is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from crossstream.graph.nodes import FrameSink, TableSink
from crossstream.lakehouse.tables import Tables, staged_rows
from crossstream.recompute.again import Rerun
from crossstream.recompute.partings import Found, Name, Parting
from crossstream.storage.log_entries import NotedFrame, Publication
from crossstream.storage.manifest import staged_name

Part = tuple[str, str]
"""How the names of the files of a task begin, and a topic."""
_Files = list[tuple[int, str]]
"""Rows and checksum of each."""


def compare_staged(rerun: Rerun) -> Found:
    """Compares records for topics with those of the transaction, if that is noted."""
    publication = rerun.past.entry.publication
    if rerun.past.after is None:
        return Found()
    if publication is None or not any(_is_of_transaction(frame) for frame in publication.staged):
        what = "results in Kafka are not compared: without exactly_once the log does not say what they are"
        return Found(notes=(what,))
    theirs = _by_task(frame for frame in publication.staged if _is_of_transaction(frame))
    ours = _by_task(rerun.results.staged)
    different: dict[Name, int] = {}
    partings: list[Parting] = []
    notes: list[str] = []
    for part in sorted(theirs.keys() | ours.keys()):
        then, now = theirs.get(part, []), ours.get(part, [])
        if then == now:
            continue
        name, counts = Name("topic", part[1]), (_rows(then), _rows(now))
        if counts[0] == counts[1] and _reads(part):
            notes.append(f"{name}: as many records as then; whether they are the same is not known")
            continue
        different[name] = different.get(name, 0) + max(counts)
        partings.append(Parting(name, -1, None, _shown(then), _shown(now)))
    return Found({}, different, tuple(partings), tuple(dict.fromkeys(notes)))


def compare_tables(rerun: Rerun) -> Found:
    """Compares rows for Delta, Iceberg and Postgres tables with those that were staged for them."""
    topology, publication = rerun.plan.topology, rerun.past.entry.publication
    others = [node.name for node in topology.each(FrameSink) if node.name in rerun.sent]
    notes = [f"{name}: rows of DataFrames are not compared" for name in others]
    if rerun.past.after is None or not any(topology.each(TableSink)):
        return Found(notes=tuple(notes))
    tables = Tables(topology, rerun.past.application.application_id)
    now = {
        name: (rows.num_rows, _checksum(staged_name("table", staged_rows(rows))))
        for name, rows in tables.rows(rerun.sent).items()
    }
    then = _noted(publication)
    different: dict[Name, int] = {}
    partings: list[Parting] = []
    for sink in sorted(then.keys() | now.keys()):
        found = now.get(sink)
        if then.get(sink) == (None if found is None else found[1]):
            continue
        name = Name("table", sink)
        different[name] = max(1, 0 if found is None else found[0])
        before = None if sink not in then else f"rows with the checksum {then[sink]}"
        after = None if found is None else _with_checksum(*found)
        partings.append(Parting(name, -1, None, before, after))
    return Found({}, different, tuple(partings), tuple(notes))


def _noted(publication: Publication | None) -> dict[str, str]:
    """The checksums of the rows of tables, by sink."""
    return {} if publication is None else {sink: _checksum(name) for name, sink in publication.tables}


def _is_of_transaction(frame: NotedFrame) -> bool:
    """Frames of file topics have tags of their own."""
    return frame[4] == b""


def _by_task(frames: Iterable[NotedFrame]) -> Mapping[Part, _Files]:
    found: dict[Part, _Files] = {}
    for name, topic, _, rows, _ in frames:
        task = name.removesuffix(".arrow").rsplit("-", 2)[0]
        found.setdefault((task, topic), []).append((rows, _checksum(name)))
    return found


def _checksum(name: str) -> str:
    """The end of a name that `staged_name` made."""
    return name.removesuffix(".arrow").rpartition("-")[2]


def _reads(part: Part) -> bool:
    """Whether the task is one of the first round."""
    return part[0].split("-")[1:2] == ["0"]


def _rows(files: _Files) -> int:
    return sum(rows for rows, _ in files)


def _shown(files: _Files) -> str | None:
    return _with_checksum(_rows(files), ", ".join(one for _, one in files)) if files else None


def _with_checksum(rows: int, checksum: str) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'} with the checksum {checksum}"
