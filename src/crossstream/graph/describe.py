"""A topology as text in the layout of Kafka's ``TopologyDescription``, as plain data, and as boxes and arrows.

Sub-topologies are parts whose operators share the keys of their records; between them records move to the
partition of another key. Nothing global is numbered, so the text changes only where the topology does.
Source: semantics 3.11 (``InternalTopologyBuilder.TopologyDescription``).
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from crossstream.graph import nodes as graph
from crossstream.graph.names import keepers, store_name, store_names
from crossstream.graph.traversal import is_rekeying, sub_topologies

FRAME = "<DataFrame>"


def to_text(topology: graph.Graph) -> str:
    """Kafka's layout, blanks included; a table source is a source and the processor that keeps it."""
    parts = []
    for number, names in enumerate(sub_topologies(topology)):
        entries = [entry for name in names for entry in _entries(topology, topology[name])]
        body = "".join(f"    {entry}\n" for entry in entries)
        if topology[names[0]].shape == "global":
            parts.append(f"  Sub-topology: {number} for global store (will not generate tasks)\n{body}")
        else:
            parts.append(f"  Sub-topology: {number}\n{body}\n")
    return "Topologies:\n " + "".join(parts)


def to_dict(topology: graph.Graph) -> dict[str, Any]:
    """The nodes as plain data for JSON, and the names in each sub-topology."""
    return {
        "nodes": [_node_dict(topology, node) for node in topology],
        "sub_topologies": sub_topologies(topology),
    }


def _topics(node: graph.Node) -> str:
    """What a source reads, as Kafka prints it: ``[orders, returns]``, or the bare pattern."""
    if isinstance(node, graph.Source):
        return f"[{', '.join(node.topics)}]" if node.pattern is None else node.pattern.pattern
    return f"[{FRAME}]"


def _entries(topology: graph.Graph, node: graph.Node) -> Iterable[str]:
    below = _names(
        child.name for child in topology.children(node.name) if node.name in _forwarders(topology, child)
    )
    above = _names(_forwarders(topology, node))
    if isinstance(node, graph.Sink):
        target = f"topic: {node.topic}"
        if node.topic_of is not None:
            target = f"extractor class: {callable_name(node.topic_of)}"
        return [f"Sink: {node.name} ({target})\n      <-- {above}"]
    if not node.reads_input:
        return [
            f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {above}"
        ]
    if node.shape == "stream":
        return [f"Source: {node.name} (topics: {_topics(node)})\n      --> {below}"]
    source = f"{node.name}-source"
    return [
        f"Source: {source} (topics: {_topics(node)})\n      --> {node.name}",
        f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {source}",
    ]


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _forwarders(topology: graph.Graph, node: graph.Node) -> list[str]:
    if node.shape == "global":
        return list(node.parents)
    return [parent for parent in node.forwarders if topology[parent].shape != "global"]


def _stores(topology: graph.Graph, node: graph.Node) -> str:
    looked_up = keepers(topology.nodes, node.parents[1]) if node.as_of_record else []
    if node.shape == "global" and node.parents:
        looked_up = keepers(topology.nodes, node.name)
    return ", ".join(
        name for one in [*looked_up, node.name] for name in store_names(topology.nodes, topology[one])
    )


def callable_name(function: Callable[..., Any]) -> str:
    """The name of a function, without blanks."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).replace(" ", "")


def _node_dict(topology: graph.Graph, node: graph.Node) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": node.name,
        "operator": node.public_name,
        "parents": list(node.parents),
        "children": [child.name for child in topology.children(node.name)],
        "shape": node.shape,
        "key": None if node.key is None else node.key.name,
        "value": None if node.value is None else node.value.name,
        "store": store_name(node),
        "line": None if node.location is None else str(node.location),
    }
    if node.side_stores:
        entry["stores"] = store_names(topology.nodes, node)
    return entry | node.described


Look = Literal["topic", "stream", "table", "join"]


@dataclass(frozen=True, slots=True)
class Box:
    """A topic or an operator. ``group``: its sub-topology, None for topics; ``store``: the stores it keeps."""

    id: str
    look: Look
    title: str
    group: int | None = None
    store: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Records go from one box to another; ``rekeys``: to the partition of another key."""

    tail: str
    head: str
    label: str = ""
    rekeys: bool = False


def picture(topology: graph.Graph) -> tuple[list[Box], list[Arrow]]:
    """The boxes and arrows of a topology, topics first; a topic that is read and written is one box."""
    group = {name: number for number, names in enumerate(sub_topologies(topology)) for name in names}
    sinks = {node.name: node for node in topology.each(graph.Sink)}
    ids = {node.name: f"n{number}" for number, node in enumerate(topology) if node.name not in sinks}
    topics: dict[str, Box] = {}
    arrows: list[Arrow] = []

    def id_of_topic(title: str) -> str:
        return topics.setdefault(title, Box(f"t{len(topics)}", "topic", title)).id

    for node in topology:
        arrows += [Arrow(id_of_topic(topic), ids[node.name]) for topic in _read(node)]
        for index, parent in enumerate(node.parents):
            if node.name in sinks:
                sink = sinks[node.name]
                chosen = "" if sink.topic_of is None else f"chosen by {callable_name(sink.topic_of)}"
                head = id_of_topic(sink.topic or chosen)
            else:
                head = ids[node.name]
            rekeys = is_rekeying(topology, parent, node)
            arrows.append(Arrow(ids[parent], head, _label(node, index, rekeys), rekeys))
    boxes = [
        Box(
            id,
            _look(topology[name]),
            name,
            group[name],
            ", ".join(store_names(topology.nodes, topology[name])),
        )
        for name, id in ids.items()
    ]
    return [*topics.values(), *boxes], arrows


def _read(node: graph.Node) -> Iterable[str]:
    if isinstance(node, graph.FrameSource):
        return [f"{FRAME} {node.name}"]
    if not isinstance(node, graph.Source):
        return []
    return node.topics if node.pattern is None else [node.pattern.pattern]


def _grouped(boxes: Iterable[Box]) -> Iterable[tuple[int | None, list[Box]]]:
    groups: dict[int | None, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box.group, []).append(box)
    return groups.items()


def to_mermaid(topology: graph.Graph) -> str:
    """A Mermaid flowchart: slanted topics, tables as drums, joins as hexagons; dotted arrows re-key."""
    boxes, arrows = picture(topology)
    lines = ["flowchart TD"]
    for number, inside in _grouped(boxes):
        if number is None:
            lines += [f"  {_mermaid_box(box)}" for box in inside]
        else:
            lines.append(f'  subgraph s{number}["sub-topology {number}"]')
            lines += [f"    {_mermaid_box(box)}" for box in inside]
            lines.append("  end")
    lines += [f"  {_mermaid_arrow(arrow)}" for arrow in arrows]
    return "\n".join(lines) + "\n"


def to_dot(topology: graph.Graph) -> str:
    """A Graphviz digraph with the same boxes and arrows."""
    boxes, arrows = picture(topology)
    lines = ["digraph topology {", "  rankdir=TB;", '  node [fontname="sans-serif"];']
    for number, inside in _grouped(boxes):
        if number is None:
            lines += [f"  {_dot_box(box)}" for box in inside]
        else:
            lines += [f"  subgraph cluster_{number} {{", f'    label="sub-topology {number}";']
            lines += [f"    {_dot_box(box)}" for box in inside]
            lines.append("  }")
    lines += [f"  {_dot_arrow(arrow)}" for arrow in arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _label(node: graph.Node, index: int, rekeys: bool) -> str:
    label = node.side_labels[index] if index < len(node.side_labels) else ""
    return label or ("re-key" if rekeys else "")


def _look(node: graph.Node) -> Look:
    if "join" in node.public_name:
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


class _Area(NamedTuple):
    x: float
    y: float
    width: float


def to_svg(topology: graph.Graph) -> str:
    """An SVG element: topics grey, streams blue, tables green, joins amber; dashed arrows re-key."""
    boxes, arrows = picture(topology)
    areas = _areas(boxes, arrows)
    width = max((area.x + area.width for area in areas.values()), default=0) + _MARGIN
    height = max((area.y + _HEIGHT for area in areas.values()), default=0) + _MARGIN
    body = [_arrow(arrow, areas) for arrow in arrows]
    body += [_box(box, areas[box.id]) for box in boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="{_STYLE}">{"".join(body)}</svg>'
    )


def _areas(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, _Area]:
    layer = _layers(boxes, arrows)
    right: dict[int, float] = {}
    areas = {}
    for box in boxes:
        x = right.get(layer[box.id], _MARGIN)
        width = max(len(box.title), len(_note(box))) * _LETTER + 24
        areas[box.id] = _Area(x, _MARGIN + layer[box.id] * _LAYER, width)
        right[layer[box.id]] = x + width + _GAP
    return areas


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, int]:
    """Each box one layer below the lowest box it reads; a topic that is also read stays on top."""
    read = {arrow.tail for arrow in arrows}
    topics = {box.id for box in boxes if box.look == "topic"}
    down = [arrow for arrow in arrows if arrow.head not in read & topics]
    layer = {box.id: 0 for box in boxes}
    for _ in boxes:
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
