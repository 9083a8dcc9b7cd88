"""The topology laid out in layers: where each box and arrow is drawn. The browser only draws.

Layers go down, each box as near above its readers as it can be. A long arrow passes through a narrow gap in each layer
between, so it runs through no box. Boxes of a layer are ordered by the places of their neighbours, which leaves few
crossings, and then moved towards them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from crossstream.graph import nodes as graph
from crossstream.graph.picture import Arrow, Box, Look, picture

WIDTH, GAP, MARGIN, LETTERS = 196, 18, 12, 28
HEIGHT, PITCH, PASSAGE = 58, 104, 10
SWEEPS = 12


class Shape(msgspec.Struct, frozen=True):
    """A box. ``name``: of its operator or topic; ``title``: the same, short enough.

    ``stores``: that the operator keeps; ``sinks``: the operators that write the topic; ``note``: how long rows stay.
    """

    name: str
    title: str
    look: Look
    stores: tuple[str, ...]
    sinks: tuple[str, ...]
    x: int
    y: int
    note: str = ""


class Line(msgspec.Struct, frozen=True):
    """An arrow as the path of SVG."""

    path: str
    label: str
    x: int
    y: int
    rekeys: bool


class Drawing(msgspec.Struct, frozen=True):
    """All of it; boxes are ``box_width`` wide and ``box_height`` high."""

    width: int
    height: int
    shapes: tuple[Shape, ...]
    lines: tuple[Line, ...]
    box_width: int = WIDTH
    box_height: int = HEIGHT


def drawing_of(topology: graph.Graph) -> Drawing:
    """Lays out a topology."""
    boxes, arrows = picture(topology)
    layer = _layers(boxes, arrows)
    rows, chains = _with_passages(boxes, arrows, layer)
    _order(rows, chains)
    middle = _placed(rows, chains)
    least = min((middle[one] - _half(one) for row in rows for one in row), default=0.0)
    at = {one: x - least + MARGIN for one, x in middle.items()}
    level = {one: MARGIN + number * PITCH for number, row in enumerate(rows) for one in row}
    sinks: dict[str | None, list[str]] = {}
    for node in topology.each(graph.Sink):
        sinks.setdefault(node.topic, []).append(node.name)
    shapes = tuple(
        Shape(
            box.title,
            shortened(box.title),
            box.look,
            tuple(filter(None, box.store.split(", "))),
            tuple(sinks.get(box.title, ())) if box.look == "topic" else (),
            round(at[box.id] - WIDTH / 2),
            level[box.id],
            box.note,
        )
        for box in boxes
    )
    lines = tuple(_line(arrow, chain, at, level) for arrow, chain in zip(arrows, chains, strict=True))
    width = max((at[one] + _half(one) for one in at), default=0.0) + MARGIN
    return Drawing(round(width), MARGIN + len(rows) * PITCH - (PITCH - HEIGHT) + MARGIN, shapes, lines)


def shortened(name: str, most: int = LETTERS) -> str:
    """The name, or its beginning and its end.

    >>> shortened("orders.join(customers).filter", 15)
    'orders.…ilter'
    """
    if len(name) <= most:
        return name
    begin = most // 2
    return f"{name[:begin]}…{name[-(most - begin - 3) :]}"


def _is_passage(one: str) -> bool:
    return one.startswith("|")


def _half(one: str) -> float:
    return (PASSAGE if _is_passage(one) else WIDTH) / 2


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> dict[str, int]:
    """As low as the readers allow; a topic that is written and read again is above what reads it."""
    read = {arrow.tail for arrow in arrows}
    again = {box.id for box in boxes if box.look == "topic"} & read
    down = [arrow for arrow in arrows if arrow.head not in again]
    layer = {box.id: 0 for box in boxes}
    for _ in boxes:
        changed = False
        for arrow in down:
            if layer[arrow.head] <= layer[arrow.tail]:
                layer[arrow.head], changed = layer[arrow.tail] + 1, True
        if not changed:
            break
    below: dict[str, list[str]] = {}
    for arrow in down:
        below.setdefault(arrow.tail, []).append(arrow.head)
    for one in sorted(layer, key=lambda name: -layer[name]):
        if one in below:
            layer[one] = min(layer[reader] for reader in below[one]) - 1
    return layer


def _with_passages(
    boxes: Sequence[Box], arrows: Sequence[Arrow], layer: dict[str, int]
) -> tuple[list[list[str]], list[list[str]]]:
    """What is in each layer, and for each arrow the boxes and passages that it goes through."""
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for box in boxes:
        rows[layer[box.id]].append(box.id)
    chains = []
    for number, arrow in enumerate(arrows):
        first, last = layer[arrow.tail], layer[arrow.head]
        step = 1 if last >= first else -1
        chain = [arrow.tail]
        for between in range(first + step, last, step):
            passage = f"|{number}|{between}"
            rows[between].append(passage)
            chain.append(passage)
        chains.append([*chain, arrow.head])
    return rows, chains


def _neighbours(rows: list[list[str]], chains: list[list[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """Above and below."""
    level = {one: number for number, row in enumerate(rows) for one in row}
    found: dict[str, tuple[list[str], list[str]]] = {one: ([], []) for one in level}
    for chain in chains:
        for one, other in pairwise(chain):
            upper, lower = (one, other) if level[one] < level[other] else (other, one)
            found[upper][1].append(lower)
            found[lower][0].append(upper)
    return found


def _order(rows: list[list[str]], chains: list[list[str]]) -> None:
    near = _neighbours(rows, chains)
    for sweep in range(SWEEPS):
        side = sweep % 2
        for row in rows if side == 0 else reversed(rows):
            place = {one: index / max(1, len(each)) for each in rows for index, one in enumerate(each)}

            def key(one: str, side: int = side, place: dict[str, float] = place) -> float:
                around = near[one][side]
                return sum(place[other] for other in around) / len(around) if around else place[one]

            row.sort(key=key)


def _placed(rows: list[list[str]], chains: list[list[str]]) -> dict[str, float]:
    """The middle of everything, in its order and without overlaps, as near to its neighbours as that allows."""
    near = _neighbours(rows, chains)
    at: dict[str, float] = {}
    for row in rows:
        edge = 0.0
        for one in row:
            at[one] = edge + _half(one)
            edge += 2 * _half(one) + GAP
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = []
            for one in row:
                around = [*near[one][0], *near[one][1]]
                wanted.append(sum(at[other] for other in around) / len(around) if around else at[one])
            offsets, edge = [], 0.0
            for index, one in enumerate(row):
                edge += (_half(row[index - 1]) + _half(one) + GAP) if index else 0.0
                offsets.append(edge)
            moved = _rising([wish - offset for wish, offset in zip(wanted, offsets, strict=True)])
            at.update({one: x + offset for one, x, offset in zip(row, moved, offsets, strict=True)})
    return at


def _rising(wanted: Sequence[float]) -> list[float]:
    """The sequence that never falls and is nearest to ``wanted`` (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for number in wanted:
        total, count = number, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def _line(arrow: Arrow, chain: list[str], at: dict[str, float], level: dict[str, int]) -> Line:
    down = level[chain[-1]] >= level[chain[0]]
    leave, enter = (HEIGHT, 0) if down else (0, HEIGHT)
    x, y = at[chain[0]], level[chain[0]] + leave
    parts = [f"M{x:.0f} {y:.0f}"]
    for one in chain[1:]:
        to_x, to_y = at[one], level[one] + enter
        bend = (y + to_y) / 2
        parts.append(f"C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
        if _is_passage(one):
            y = level[one] + leave
            parts.append(f"V{y:.0f}")
    first, second = chain[0], chain[1]
    label_x = (at[first] + at[second]) / 2
    label_y = (level[first] + leave + level[second] + enter) / 2
    return Line("".join(parts), arrow.label, round(label_x), round(label_y), arrow.rekeys)


def encoded(drawing: Drawing | None) -> bytes:
    """As JSON, for the browser."""
    value: Any = drawing
    return msgspec.json.encode(value)
