"""A topology as boxes and arrows, and these as Mermaid and Graphviz: topics, operators, and where records re-key."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crossstream.durations import in_words
from crossstream.graph import nodes as graph
from crossstream.graph.describe import FRAME, callable_name
from crossstream.graph.names import store_names
from crossstream.graph.traversal import is_rekeying, sub_topologies

Look = Literal["topic", "stream", "table", "join"]


@dataclass(frozen=True, slots=True)
class Box:
    """A topic or an operator. ``group``: its sub-topology, None for topics; ``store``: the stores it keeps.

    ``note``: for how long rows stay there.
    """

    id: str
    look: Look
    title: str
    group: int | None = None
    store: str = ""
    note: str = ""


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
            _note(topology[name]),
        )
        for name, id in ids.items()
    ]
    return [*topics.values(), *boxes], arrows


def _note(node: graph.Node) -> str:
    if node.store is None or node.ttl is None:
        return ""
    return f"ttl {in_words(node.ttl)}" + (", wall clock" if node.store.clock == "wall" else "")


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
    text += f"<br/>{box.note}" if box.note else ""
    return f'{box.id}{opening}"{text}"{closing}'


def _mermaid_arrow(arrow: Arrow) -> str:
    line = "-.->" if arrow.rekeys else "-->"
    return f"{arrow.tail} {line}{f'|{arrow.label}|' if arrow.label else ''} {arrow.head}"


def _dot_box(box: Box) -> str:
    text = _quoted(box.title) + (f"\\nstore {_quoted(box.store)}" if box.store else "")
    text += f"\\n{box.note}" if box.note else ""
    return f'{box.id} [shape={_DOT[box.look]}, label="{text}"];'


def _dot_arrow(arrow: Arrow) -> str:
    settings = [f'label="{arrow.label}"'] if arrow.label else []
    settings += ["style=dashed"] if arrow.rekeys else []
    return f"{arrow.tail} -> {arrow.head}" + (f" [{', '.join(settings)}];" if settings else ";")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
