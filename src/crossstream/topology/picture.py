"""The picture of a topology for notebooks: layered boxes as inline SVG, nothing loaded from elsewhere."""

from __future__ import annotations

import html
from dataclasses import dataclass

from crossstream.topology.drawing import Arrow, Box, Picture, picture
from crossstream.topology.graph import Topology

_HEIGHT, _GAP, _LAYER, _MARGIN, _LETTER = 44, 28, 92, 16, 7.2
_FILL = {"topic": "#8883", "stream": "#3b82f633", "table": "#10b98133", "join": "#f59e0b44"}
_LINE = 'fill="none" stroke="currentColor"'
_STYLE = "font-family:sans-serif;font-size:12px;max-width:100%"


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float
    width: float


def to_svg(topology: Topology) -> str:
    """An SVG element: topics grey, streams blue, tables green, joins amber; dashed arrows re-key."""
    shown = picture(topology)
    places = _places(shown)
    width = max((place.x + place.width for place in places.values()), default=0) + _MARGIN
    height = max((place.y + _HEIGHT for place in places.values()), default=0) + _MARGIN
    body = [_arrow(arrow, places) for arrow in shown.arrows]
    body += [_box(box, places[box.id]) for box in shown.boxes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="{_STYLE}">{"".join(body)}</svg>'
    )


def _places(shown: Picture) -> dict[str, _Place]:
    layer = _layers(shown)
    right: dict[int, float] = {}
    places = {}
    for box in shown.boxes:
        x = right.get(layer[box.id], _MARGIN)
        width = max(len(box.title), len(_note(box))) * _LETTER + 24
        places[box.id] = _Place(x, _MARGIN + layer[box.id] * _LAYER, width)
        right[layer[box.id]] = x + width + _GAP
    return places


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


def _box(box: Box, place: _Place) -> str:
    corner = 0 if box.look == "topic" else 22 if box.look == "join" else 6
    middle = place.x + place.width / 2
    note = _note(box)
    lines = _text(box.title, middle, place.y + (19 if note else 27), 'text-anchor="middle"')
    if note:
        lines += _text(note, middle, place.y + 35, 'text-anchor="middle" opacity="0.7"')
    return (
        f'<rect x="{place.x:.0f}" y="{place.y:.0f}" width="{place.width:.0f}" height="{_HEIGHT}" '
        f'rx="{corner}" fill="{_FILL[box.look]}" stroke="currentColor"/>{lines}'
    )


def _arrow(arrow: Arrow, places: dict[str, _Place]) -> str:
    tail, head = places[arrow.tail], places[arrow.head]
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
