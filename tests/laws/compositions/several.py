"""Where one record makes several records, or changes one row of a table several times.

Several changes of a row by one record are one change, to the last of the values (semantics 2.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.laws.compositions.graphs import Graph, Kind, Step, kinds_of


def ways_of(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Of each step: whether one record makes several records or changes; whether several of one row of a table."""
    kinds = kinds_of(graph)
    several: list[bool] = []
    merged: list[bool] = []
    for number, step in enumerate(graph):
        from_several = any(several[parent] for parent in step.parents)
        by_key = step.op in ("to_table", "aggregate") and from_several
        inherited = step.fn != "closes" and any(merged[parent] for parent in step.parents)
        merged.append(by_key or inherited or repeats_left_out(graph, number))
        several.append(
            from_several or makes_several(step, kinds[number], [kinds[one] for one in step.parents])
        )
    return several, merged


def repeats_left_out(graph: Graph, number: int) -> bool:
    """Whether it makes windows that one record may change twice, and operators on tables read it."""
    step, children = graph[number], [one for one in graph if number in one.parents]
    windowed = step.windows is not None and step.windows.kind in ("session", "sliding")
    return windowed and any(one.op != "to_stream" for one in children)


def makes_several(step: Step, kind: Kind, parents: Sequence[Kind]) -> bool:
    """Whether one record or change may make several, of whatever keys."""
    if step.op == "join":
        return parents[-1].shape == kind.shape == "stream"
    if step.op == "aggregate":
        return step.windows is not None or parents[0].shape == "table"
    return step.op in ("flat_map", "flat_map_values", "suppress", "fk", "many", "view")
