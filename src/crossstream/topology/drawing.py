"""A topology as boxes and arrows, and these as Mermaid and Graphviz text: pure functions over the graph."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crossstream.topology.describe import FRAME, callable_name, is_rekeying, kind_of, sub_topologies
from crossstream.topology.graph import (
    ForeignKeyJoin,
    FrameSource,
    ManyJoin,
    Node,
    Sink,
    Source,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoin,
    Topology,
)
from crossstream.topology.validate import store_names

Look = Literal["topic", "stream", "table", "join"]


@dataclass(frozen=True, slots=True)
class Box:
    """A topic or an operator. ``group``: its sub-topology, None for topics; ``store``: what it keeps."""

    id: str
    look: Look
    title: str
    group: int | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Arrow:
    """Records go from one box to another; ``rekeys``: to the partition of another key."""

    tail: str
    head: str
    label: str = ""
    rekeys: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What every drawing shows."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def groups(self) -> list[int]:
        """Numbers of the sub-topologies."""
        return sorted({box.group for box in self.boxes if box.group is not None})


def picture(topology: Topology) -> Picture:
    """The boxes and arrows of a topology; a topic that is read and written is one box."""
    group = {name: number for number, names in enumerate(sub_topologies(topology)) for name in names}
    ids = {node.name: f"n{number}" for number, node in enumerate(topology) if not isinstance(node, Sink)}
    topics: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for node in topology:
        for topic in _read(node):
            arrows.append(Arrow(_topic(topics, topic), ids[node.name]))
        for place, parent in enumerate(node.parents):
            head = _topic(topics, _written(node)) if isinstance(node, Sink) else ids[node.name]
            rekeys = is_rekeying(topology, parent, node)
            arrows.append(Arrow(ids[parent], head, _label(node, place, rekeys), rekeys))
    boxes = tuple(
        Box(
            ids[node.name],
            _look(node),
            node.name,
            group[node.name],
            ", ".join(store_names(topology.nodes, node)) or None,
        )
        for node in topology
        if node.name in ids
    )
    return Picture((*topics.values(), *boxes), tuple(arrows))


def to_mermaid(topology: Topology) -> str:
    """A Mermaid flowchart: slanted topics, tables as drums, joins as hexagons; dotted arrows re-key."""
    shown = picture(topology)
    lines = ["flowchart TD"]
    lines += [f"  {_mermaid_box(box)}" for box in shown.boxes if box.group is None]
    for number in shown.groups:
        lines.append(f'  subgraph s{number}["sub-topology {number}"]')
        lines += [f"    {_mermaid_box(box)}" for box in shown.boxes if box.group == number]
        lines.append("  end")
    lines += [f"  {_mermaid_arrow(arrow)}" for arrow in shown.arrows]
    return "\n".join(lines) + "\n"


def to_dot(topology: Topology) -> str:
    """A Graphviz digraph with the same boxes and arrows."""
    shown = picture(topology)
    lines = ["digraph topology {", "  rankdir=TB;", '  node [fontname="sans-serif"];']
    lines += [f"  {_dot_box(box)}" for box in shown.boxes if box.group is None]
    for number in shown.groups:
        lines += [f"  subgraph cluster_{number} {{", f'    label="sub-topology {number}";']
        lines += [f"    {_dot_box(box)}" for box in shown.boxes if box.group == number]
        lines.append("  }")
    lines += [f"  {_dot_arrow(arrow)}" for arrow in shown.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _read(node: Node) -> Iterable[str]:
    if isinstance(node, FrameSource):
        return [f"{FRAME} {node.name}"]
    if not isinstance(node, Source):
        return []
    return node.topics if node.pattern is None else [node.pattern.pattern]


def _written(sink: Sink) -> str:
    return sink.topic or (f"chosen by {callable_name(sink.topic_of)}" if sink.topic_of else "")


def _topic(topics: dict[str, Box], title: str) -> str:
    box = topics.setdefault(title, Box(f"t{len(topics)}", "topic", title))
    return box.id


def _label(node: Node, place: int, rekeys: bool) -> str:
    if isinstance(node, ForeignKeyJoin):
        return "foreign key" if place == 0 else "right"
    if isinstance(node, ManyJoin):
        return ("foreign keys", *node.names)[place]
    if isinstance(node, TableJoin | StreamStreamJoin):
        return ("left", "right")[place]
    if isinstance(node, StreamTableJoin | StreamGlobalJoin) and place == 1:
        return "looks up"
    return "re-key" if rekeys else ""


def _look(node: Node) -> Look:
    if "join" in kind_of(node):
        return "join"
    return "table" if node.shape in ("table", "global") else "stream"


_MERMAID = {"topic": ("[/", "/]"), "stream": ("[", "]"), "table": ("[(", ")]"), "join": ("{{", "}}")}
_DOT = {"topic": "parallelogram", "stream": "box", "table": "cylinder", "join": "hexagon"}


def _mermaid_box(box: Box) -> str:
    opening, closing = _MERMAID[box.look]
    text = html.escape(box.title) + (f"<br/>store {html.escape(box.store)}" if box.store else "")
    return f'{box.id}{opening}"{text}"{closing}'


def _mermaid_arrow(arrow: Arrow) -> str:
    line = "-.->" if arrow.rekeys else "-->"
    return f"{arrow.tail} {line}{f'|{arrow.label}|' if arrow.label else ''} {arrow.head}"


def _dot_box(box: Box) -> str:
    text = _quoted(box.title) + (f"\\nstore {_quoted(box.store)}" if box.store else "")
    return f'{box.id} [shape={_DOT[box.look]}, label="{text}"];'


def _dot_arrow(arrow: Arrow) -> str:
    settings = [f'label="{arrow.label}"'] if arrow.label else []
    settings += ["style=dashed"] if arrow.rekeys else []
    return f"{arrow.tail} -> {arrow.head}" + (f" [{', '.join(settings)}];" if settings else ";")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
