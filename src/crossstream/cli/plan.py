"""`crossstream plan --against STATE_DIR app.py`: what the state of an application becomes with another topology.

Nothing is written, and the topics are not asked: the application may run, and the brokers may be away.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from crossstream.application.open_state import check_fit, wanted_of
from crossstream.catalog.planners import plan_topology
from crossstream.cli.console import say, show_table
from crossstream.cli.loading import load, settled
from crossstream.cli.query import state_root
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import FrameSource, Graph, Source
from crossstream.query.files import application_of
from crossstream.query.text import to_json
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, Commit


@dataclass(frozen=True, slots=True)
class StoreChange:
    """``change``: unchanged, changed, new or gone. ``was``, ``is_now``: kind, key serde, value serde, history."""

    store: str
    change: str
    was: str | None
    is_now: str | None


@dataclass(frozen=True, slots=True)
class TopicChange:
    """``change``: continues, begins or gone. ``at``: the offset of each partition, or where it begins."""

    topic: str
    change: str
    source: str | None
    at: dict[int, int] | str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``--json`` prints. ``starts``: whether the application would; ``refused``: the error, if not."""

    application_id: str
    topology_of: str
    batch: int
    partitions: int
    starts: bool
    refused: dict[str, str | None] | None
    stores: list[StoreChange]
    topics: list[TopicChange]


def main(arguments: Namespace) -> int:
    """Prints what a topology keeps, loses and needs of a state; 1 if the application would refuse to start."""
    root = state_root(arguments.against)
    found = application_of(root)
    log = BatchLog(root)
    commit = log.last_commit()
    loaded = load(arguments.file)
    plan = plan_topology(loaded.topology)
    config = settled(loaded, arguments)
    wanted = wanted_of(plan, config, found, found.partitions, found.topology)
    refused = None
    try:
        check_fit(found, wanted, root, committed=commit is not None)
        _check_frames(plan.topology, found, commit)
    except CrossStreamError as error:
        refused = {"code": error.code, "what": error.what, "next": error.next}
    after = commit or Commit(-1, found.partitions)
    compared = Comparison(
        found.application_id,
        wanted.application_id,
        after.id,
        after.partitions,
        refused is None,
        refused,
        list(_stores(found, wanted)),
        list(_topics(plan.topology, after)),
    )
    if arguments.json:
        print(to_json(compared))
    else:
        _show(compared)
    return 0 if refused is None else 1


def _stores(found: Application, wanted: Application) -> Iterator[StoreChange]:
    for name in sorted(found.stores.keys() | wanted.stores.keys()):
        was, now = found.stores.get(name), wanted.stores.get(name)
        moved = (name in found.placed) != (name in wanted.placed)
        fed = found.tables.get(name) != wanted.tables.get(name) and None not in (was, now)
        same = "changed" if was != now or moved or fed else "unchanged"
        yield StoreChange(name, "new" if was is None else "gone" if now is None else same, was, now)


def _topics(topology: Graph, commit: Commit) -> Iterator[TopicChange]:
    """The topics that are read by name or were read, each with its source: one may take over from another."""
    read = {topic: at for topics in commit.positions.values() for topic, at in topics.items()}
    sources = list(topology.each(Source))
    named = {topic: node for node in sources for topic in node.topics}
    for topic in sorted(read.keys() - named.keys()):
        node = next(
            (one for one in sources if one.pattern is not None and one.pattern.fullmatch(topic)), None
        )
        if node is not None:
            named[topic] = node
    for topic in sorted(read.keys() | named.keys()):
        node = named.get(topic)
        if node is None:
            yield TopicChange(topic, "gone", None, dict(read[topic]))
        elif topic in read:
            yield TopicChange(topic, "continues", node.name, dict(read[topic]))
        else:
            yield TopicChange(topic, "begins", node.name, str(node.offset_reset))


def _check_frames(topology: Graph, found: Application, commit: Commit | None) -> None:
    frames = {node.name for node in topology.each(FrameSource)}
    if found.frames and frames and frames != set(found.frames) and commit is not None and commit.epoch >= 0:
        raise refuse(
            "CS-750",
            f"the DataFrame sources were {', '.join(sorted(found.frames))}, and are {', '.join(sorted(frames))}",
            "keep the DataFrame sources, or start with a new application_id or an empty state_dir",
        )


def _show(found: Comparison) -> None:
    say(f"{found.application_id} after batch {found.batch}, {found.partitions} state partitions")
    if found.stores:
        show_table(
            ["store", "state", "was", "is"],
            [[one.store, one.change, one.was or "-", one.is_now or "-"] for one in found.stores],
        )
    if found.topics:
        show_table(
            ["topic", "position", "source", "at"],
            [[one.topic, one.change, one.source or "-", _place(one.at)] for one in found.topics],
        )
    if found.refused is None:
        say("the application starts on this state" + _notes(found))
        return
    say(f"the application would not start on this state: [{found.refused['code']}] {found.refused['what']}")
    say(f"next: {found.refused['next']}")
    say(
        "A second application can compute everything from the topics beside the first, with new output topics."
    )


def _notes(found: Comparison) -> str:
    said = []
    if found.batch < 0 and any(one.change != "unchanged" for one in found.stores):
        said.append("nothing is committed, so every store may change")
    if begun := [one.topic for one in found.topics if one.change == "begins"]:
        said.append(f"it reads {', '.join(begun)} from the beginning that the source names")
    if gone := [one.topic for one in found.topics if one.change == "gone"]:
        said.append(f"it reads {', '.join(gone)} no more, and keeps what came from there")
    return f": {'; '.join(said)}" if said else ""


def _place(at: dict[int, int] | str | None) -> str:
    if isinstance(at, dict):
        return ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(at.items())) or "-"
    return at or "-"
