"""What the runs of `crossstream bench tpch` come to: medians, ratios within a round, and what ``--write`` writes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import report

HEADING = "TPC-H under a stream of changes"
FIGURES = {"per second": "changes per second", "core-seconds per million": "core-seconds per million changes"}
OURS, FLINK, MERGE = "crossstream", "flink", "merge"

Line = Mapping[str, Any]


def summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """For each query and side the medians, and how many times each peer ours is: the median of the rounds."""
    found = []
    for query, side in dict.fromkeys((line["query"], line["side"]) for line in lines):
        mine = [line for line in lines if (line["query"], line["side"]) == (query, side)]
        medians = {name: statistics.median(line[name] for line in mine) for name in ("snapshot", *FIGURES)}
        made = {"query": query, "side": side, **medians}
        if side == OURS:
            of_query = [line for line in lines if line["query"] == query]
            made |= {f"times {peer}": times for peer in (FLINK, MERGE) if (times := ratio(of_query, peer))}
        found.append(made)
    return found


def ratio(lines: Sequence[Line], peer: str) -> float | None:
    """Our changes a second by those of the best side of a peer in the same round: the median of all rounds."""
    ratios = []
    for number in dict.fromkeys(line["round"] for line in lines):
        of_round = [line for line in lines if line["round"] == number]
        ours = [line["per second"] for line in of_round if line["side"] == OURS]
        theirs = [line["per second"] for line in of_round if line["side"].startswith(peer)]
        if ours and theirs:
            ratios.append(ours[0] / max(theirs))
    return round(statistics.median(ratios), 2) if ratios else None


def write(lines: Sequence[Line], command: str, sizes: str) -> None:
    """The section of RESULTS.md and its picture."""
    found = summary(lines)
    parts = [f"`{command}`: {sizes}"]
    for figure, title in FIGURES.items():
        sides = list(dict.fromkeys(line["side"] for line in found))
        ratios = ["times Flink's best", "times `MERGE`"] if figure == "per second" else []
        rows = [row(found, query, sides, figure, bool(ratios)) for query in queries(found)]
        parts.append(report.table([title, *sides, *ratios], rows))
    report.section(HEADING, "\n\n".join(parts))
    groups = {
        query: {line["side"]: line["per second"] for line in found if line["query"] == query}
        for query in queries(found)
    }
    report.bars("tpch", HEADING, groups, "changes per second")


def queries(lines: Iterable[Line]) -> list[str]:
    return list(dict.fromkeys(line["query"] for line in lines))


def row(found: Sequence[Line], query: str, sides: Sequence[str], figure: str, ratios: bool) -> list[str]:
    by_side = {line["side"]: line for line in found if line["query"] == query}
    cells = [f"{by_side[side][figure]:,.5g}" if side in by_side else "–" for side in sides]
    if ratios:
        ours = by_side.get(OURS, {})
        cells += [f"{ours[name]}×" if (name := f"times {peer}") in ours else "–" for peer in (FLINK, MERGE)]
    return [query, *cells]
