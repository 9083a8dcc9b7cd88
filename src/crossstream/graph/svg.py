"""The layout of a topology as an SVG element, for notebooks: the drawing that the page shows."""

from __future__ import annotations

import html

from crossstream.graph.layout import Drawing, Line, Shape, drawing_of
from crossstream.graph.node import Graph

_FILL = {"topic": "#8883", "stream": "#3b82f633", "table": "#10b98133", "join": "#f59e0b44"}
_CORNER = {"topic": 0, "stream": 6, "table": 6, "join": 22}
_LINE = 'fill="none" stroke="currentColor"'
_STYLE = "font-family:sans-serif;font-size:12px;max-width:100%"


def to_svg(topology: Graph) -> str:
    """An SVG element: topics grey, streams blue, tables green, joins amber; dashed arrows re-key."""
    drawing = drawing_of(topology)
    body = [_arrow(line) for line in drawing.lines]
    body += [_box(shape, drawing) for shape in drawing.shapes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}" '
        f'width="{drawing.width}" height="{drawing.height}" style="{_STYLE}">{"".join(body)}</svg>'
    )


def _box(shape: Shape, drawing: Drawing) -> str:
    width, height, middle = drawing.box_width, drawing.box_height, shape.x + drawing.box_width / 2
    note = ", ".join(
        [f"store {', '.join(shape.stores)}"] * bool(shape.stores) + [shape.note] * bool(shape.note)
    )
    lines = _text(
        shape.title, middle, shape.y + (height / 2 - 4 if note else height / 2 + 4), 'text-anchor="middle"'
    )
    if note:
        style = (
            f'text-anchor="middle" opacity="0.7" textLength="{width - 16}" lengthAdjust="spacingAndGlyphs"'
        )
        fits = len(note) * 7 < width
        lines += _text(
            note, middle, shape.y + height / 2 + 14, 'text-anchor="middle" opacity="0.7"' if fits else style
        )
    return (
        f"<g><title>{html.escape(shape.name)}</title>"
        f'<rect x="{shape.x}" y="{shape.y}" width="{width}" height="{height}" rx="{_CORNER[shape.look]}" '
        f'fill="{_FILL[shape.look]}" stroke="currentColor"/>{lines}</g>'
    )


def _arrow(line: Line) -> str:
    dash = ' stroke-dasharray="4 3"' if line.rekeys else ""
    x, y = line.path.rsplit(" ", 2)[-2:]
    tip = f"M{float(x) - 4:.0f} {float(y) - 7:.0f}L{x} {y}L{float(x) + 4:.0f} {float(y) - 7:.0f}"
    label = _text(line.label, line.x + 4, line.y) if line.label else ""
    return f'<path d="{line.path}" {_LINE}{dash}/><path d="{tip}" {_LINE}/>{label}'


def _text(text: str, x: float, y: float, style: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="currentColor" {style}>{html.escape(text)}</text>'
