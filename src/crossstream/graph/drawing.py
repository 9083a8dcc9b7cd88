"""A topology as boxes and arrows: Mermaid, Graphviz, and inline SVG for notebooks. Pure functions over the graph."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crossstream.graph.describe import FRAME, callable_name, is_rekeying, kind_of, sub_topologies
from crossstream.graph.nodes import (
    ForeignKeyJoin,
    FrameSource,
    GlobalJoin,
    Graph,
    ManyJoin,
    Node,
    Sink,
    Source,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoin,
)
from crossstream.graph.stores import store_names

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


def picture(topology: Graph) -> Picture:
    """The boxes and arrows of a topology; a topic that is read and written is one box."""
    group = {name: number for number, names in enumerate(sub_topologies(topology)) for name in names}
    ids = {node.name: f"n{number}" for number, node in enumerate(topology) if not isinstance(node, Sink)}
    topics: dict[str, Box] = {}
    arrows: list[Arrow] = []
    for node in topology:
        for topic in _read(node):
            arrows.append(Arrow(_topic(topics, topic), ids[node.name]))
        for index, parent in enumerate(node.parents):
            head = _topic(topics, _written(node)) if isinstance(node, Sink) else ids[node.name]
            rekeys = is_rekeying(topology, parent, node)
            arrows.append(Arrow(ids[parent], head, _label(node, index, rekeys), rekeys))
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


def to_mermaid(topology: Graph) -> str:
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


def to_dot(topology: Graph) -> str:
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


def _label(node: Node, index: int, rekeys: bool) -> str:
    if isinstance(node, ForeignKeyJoin):
        return "foreign key" if index == 0 else "right"
    if isinstance(node, ManyJoin):
        return ("foreign keys", *node.names)[index]
    if isinstance(node, GlobalJoin | TableJoin | StreamStreamJoin):
        return ("left", "right")[index]
    if isinstance(node, StreamTableJoin | StreamGlobalJoin) and index == 1:
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


_HEIGHT, _GAP, _LAYER, _MARGIN, _LETTER = 44, 28, 92, 16, 7.2
_FILL = {"topic": "#8883", "stream": "#3b82f633", "table": "#10b98133", "join": "#f59e0b44"}
_LINE = 'fill="none" stroke="currentColor"'
_STYLE = "font-family:sans-serif;font-size:12px;max-width:100%"


@dataclass(frozen=True, slots=True)
class _Area:
    x: float
    y: float
    width: float


def to_svg(topology: Graph) -> str:
    """An SVG element: topics grey, streams blue, tables green, joins amber; dashed arrows re-key."""
    shown = picture(topology)
    areas = _areas(shown)
    width = max((area.x + area.width for area in areas.values()), default=0) + _MARGIN
    height = max((area.y + _HEIGHT for area in areas.values()), default=0) + _MARGIN
    body = [_arrow(arrow, areas) for arrow in shown.arrows]
    body += [_box(box, areas[box.id]) for box in shown.boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="{_STYLE}">{"".join(body)}</svg>'
    )


def _areas(shown: Picture) -> dict[str, _Area]:
    layer = _layers(shown)
    right: dict[int, float] = {}
    areas = {}
    for box in shown.boxes:
        x = right.get(layer[box.id], _MARGIN)
        width = max(len(box.title), len(_note(box))) * _LETTER + 24
        areas[box.id] = _Area(x, _MARGIN + layer[box.id] * _LAYER, width)
        right[layer[box.id]] = x + width + _GAP
    return areas


def _layers(shown: Picture) -> dict[str, int]:
    """Each box one layer below the lowest box it reads; a topic that is also read stays on top."""
    read = {arrow.tail for arrow in shown.arrows}
    topics = {box.id for box in shown.boxes if box.look == "topic"}
    down = [arrow for arrow in shown.arrows if arrow.head not in read & topics]
    layer = {box.id: 0 for box in shown.boxes}
    for _ in shown.boxes:
        for arrow in down:
            layer[arrow.head] = max(layer[arrow.head], layer[arrow.tail] + 1)
    return layer


def _box(box: Box, area: _Area) -> str:
    corner = 0 if box.look == "topic" else 22 if box.look == "join" else 6
    middle = area.x + area.width / 2
    note = _note(box)
    lines = _text(box.title, middle, area.y + (19 if note else 27), 'text-anchor="middle"')
    if note:
        lines += _text(note, middle, area.y + 35, 'text-anchor="middle" opacity="0.7"')
    return (
        f'<rect x="{area.x:.0f}" y="{area.y:.0f}" width="{area.width:.0f}" height="{_HEIGHT}" '
        f'rx="{corner}" fill="{_FILL[box.look]}" stroke="currentColor"/>{lines}'
    )


def _arrow(arrow: Arrow, areas: dict[str, _Area]) -> str:
    tail, head = areas[arrow.tail], areas[arrow.head]
    x1, y1, x2, y2 = tail.x + tail.width / 2, tail.y + _HEIGHT, head.x + head.width / 2, head.y
    dash = ' stroke-dasharray="4 3"' if arrow.rekeys else ""
    bend = (y1 + y2) / 2
    line = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {bend:.0f} {x2:.0f} {bend:.0f} {x2:.0f} {y2:.0f}"
    tip = f"M{x2 - 4:.0f} {y2 - 7:.0f}L{x2:.0f} {y2:.0f}L{x2 + 4:.0f} {y2 - 7:.0f}"
    label = _text(arrow.label, (x1 + x2) / 2 + 4, bend) if arrow.label else ""
    return f'<path d="{line}" {_LINE}{dash}/><path d="{tip}" {_LINE}/>{label}'


def _text(text: str, x: float, y: float, style: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="currentColor" {style}>{html.escape(text)}</text>'


def _note(box: Box) -> str:
    return f"store {box.store}" if box.store else ""
