"""What a benchmark writes when it is asked to (``--write``): its section of RESULTS.md, and its picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PICTURES = ROOT / "docs" / "images"

COLOURS = ("#3f51b5", "#f08c00", "#868e96", "#2b8a3e", "#c2255c", "#5f3dc4")
"""Of the sides, in their order: ours come first."""


def section(heading: str, body: str, results: Path = RESULTS) -> None:
    """Replaces the section ``## heading`` of the results, or adds it at the end."""
    text = results.read_text()
    new = f"## {heading}\n\n{body.strip()}\n"
    old = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if old is None:
        results.write_text(f"{text.rstrip()}\n\n{new}")
        return
    rest = text[old.end() :]
    results.write_text(text[: old.start()] + new + (f"\n{rest}" if rest else ""))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def bars(
    name: str, title: str, groups: Mapping[str, Mapping[str, float]], unit: str, pictures: Path = PICTURES
) -> Path:
    """Writes ``bench-<name>.svg``: a group of bars for each question, in it one for each side that answered.

    ``groups``: by question the figure of each side. ``unit``: what the axis counts.
    """
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = name
    from matplotlib import pyplot as plt

    sides = list(dict.fromkeys(side for figures in groups.values() for side in figures))
    figure, axes = plt.subplots(figsize=(9, 0.5 + len(groups) * (0.2 * len(sides) + 0.25)))
    height = 0.8 / len(sides)
    for number, side in enumerate(sides):
        places = [place + number * height for place, figures in enumerate(groups.values()) if side in figures]
        values = [figures[side] for figures in groups.values() if side in figures]
        drawn = axes.barh(places, values, height * 0.92, label=side, color=COLOURS[number % len(COLOURS)])
        axes.bar_label(drawn, [_short(value) for value in values], padding=3, fontsize=8)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(groups))], list(groups))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.1)
    axes.legend(frameon=False, fontsize=8)
    pictures.mkdir(parents=True, exist_ok=True)
    path = pictures / f"bench-{name}.svg"
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return path


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
