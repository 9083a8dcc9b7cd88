"""The law over compositions: random graphs of every kind of operator give what their records give one by one.

In any cut into batches, on any number of state partitions, each function a callable, an expression or the name of a
field, with and without stores and declared types. What is right says the reference, which is plain Python; where it
does not (the order in which one record comes to an operator on several ways), the driver itself with callables,
without stores, in one partition, one record in a batch.

Cases come from seeds, for Hypothesis repeats too much of large graphs. A failure is shown small (`shrinking`), and
becomes one of `FOUND`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.laws.compositions.drawing import case
from tests.laws.compositions.functions import row
from tests.laws.compositions.graphs import Case, Item, Step, Way, Windows
from tests.laws.compositions.running import check, check_with_itself
from tests.laws.compositions.shrinking import shrunk

CASES = 300
NIGHTLY = 20_000

ROWS, NUMBERS = Step("stream", fn="row", declared=True), Step("stream", fn="int")
REDUCED, COUNTED = (
    Step("aggregate", (0,), "reduce"),
    Step("aggregate", (0,), "count", windows=Windows("sliding")),
)
COLUMNS = ("approx", "max", "mean")


def found(*graph: Step, each: bool = True) -> Case:
    """A graph that failed, with three records of one key for each of its streams. ``each``: one in a batch."""
    sources = [number for number, step in enumerate(graph) if not step.parents]
    values = {"row": [row(7, "a", 2.0), row(1, "a", 0.5), row(2, "b")], "int": [7, 1, 2]}
    items = [Item(number, "a", values[graph[number].fn][n], 40 + n) for n in range(3) for number in sources]
    return Case(graph, tuple(items), Way(each=each))


FOUND = {
    f"old values are taken away behind a {op} by an expression": found(
        ROWS, REDUCED, Step(op, (1,), fn, "expr"), Step("aggregate", (2,), "count", by="s")
    )
    for op, fn in (("filter", "n > 0"), ("filter_not", "x < 2"), ("map_values", "same"))
} | {
    "a stream finds a reduced row, not the last record": found(
        NUMBERS, NUMBERS, Step("aggregate", (1,), "reduce"), Step("join", (0, 2), "left"), each=False
    ),
    "a stream finds a row of a cogroup": found(
        NUMBERS, NUMBERS, Step("aggregate", (0, 1), "cogroup"), Step("join", (1, 2), "inner"), each=False
    ),
    "sessions of means and distinct values are filtered": found(
        ROWS,
        Step("aggregate", (0,), "agg", windows=Windows("session"), columns=COLUMNS),
        Step("filter", (1,), "n > 0"),
    ),
    "what a function made is aggregated in columns in its round": found(
        ROWS,
        Step("table", fn="row"),
        Step("join", (0, 1), "left"),
        Step("aggregate", (2,), "agg", declared=True, columns=COLUMNS),
    ),
    "what a function made is grouped by an expression": found(
        ROWS, REDUCED, Step("aggregate", (1,), "count", "expr", by="s")
    ),
    "counts of sliding windows are filtered by an expression": found(
        ROWS, COUNTED, Step("filter_not", (1,), "n > 4", "expr")
    ),
    "what a processor makes of values is read as a table": found(
        ROWS, Step("process_values", (0,)), Step("to_table", (1,))
    ),
    "rows that a function of batches returns stay in order for windows": Case(
        (
            NUMBERS,
            Step("transform", (0,)),
            Step("aggregate", (1,), "count", by="s", windows=Windows("time", grace=5)),
        ),
        (Item(0, "a", 8, 53), Item(0, "a", 1, 38)),
    ),
    "means of means are rounded once": Case(
        (
            NUMBERS,
            Step("aggregate", (0,), "agg", windows=Windows("session", 4), columns=("min", "first", "mean")),
            Step("aggregate", (1,), "agg", by="s", columns=("approx", "set", "mean")),
        ),
        tuple(
            Item(0, key, n, ts)
            for key, n, ts in [("b", 1, 8), ("b", 6, 8), ("b", 3, 11), ("a", 7, 12), ("a", 9, 26)]
        ),
    ),
    "one record changes two rows of a group, and a filter fails on both together": Case(
        (
            Step("table", fn="int"),
            Step("many", (0, 0, 0), "inner", by="expr"),
            Step("map_values", (1,), "more"),
            Step("map_values", (2,), "more"),
            Step("aggregate", (3,), "aggregate", by="s"),
            Step("filter", (4,), "n odd", store=True, fails=True),
        ),
        (Item(0, "c", 7, 3), Item(0, "a", 5, 6)),
        Way(each=True),
    ),
    "an expression of a stream fails on one record, and is skipped for it": Case(
        (Step("stream", fn="row", declared=True), Step("map_values", (0,), "more", "expr", fails=True)),
        (Item(0, "a", row(3, "a"), 1), Item(0, "a", row(4, "a"), 2), Item(0, "b", row(5, "a"), 3)),
    ),
    "both sides' fields are kept, where one side is missing": Case(
        (ROWS, ROWS, Step("join", (0, 1), "outer", "prefixed", within=3)),
        (Item(0, "a", row(1, "a", 0.5), 1), Item(1, "b", row(2, "b"), 2), Item(0, "c", row(3), 50)),
    ),
    "windows in a named store are joined": found(
        ROWS,
        Step("aggregate", (0,), "count", store=True, windows=Windows("sliding")),
        Step("join", (1, 1), "inner"),
    ),
    "versions of a group's row are as new as its newest row": Case(
        (
            Step("table", fn="row"),
            Step("aggregate", (0,), "reduce", by="key, row"),
            Step("to_stream", (1,)),
            Step("to_table", (2,), history=12),
            Step("aggregate", (3,), "reduce", by="key, row"),
        ),
        (Item(0, "c", row(2, "b"), 27), Item(0, "b", row(1, "b", 1.0), 22)),
        Way(),
    ),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_found(case: Case) -> None:
    check(case)


def test_compositions() -> None:
    for seed in range(1, CASES + 1):
        holds(case(Random(f"composition {seed}")))


def test_compositions_beside_themselves() -> None:
    for seed in range(CASES, CASES + CASES // 10):
        holds(case(Random(f"composition {seed}")), check_with_itself)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_compositions_for_long(fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        holds(case(Random(f"composition {seed}")))


def holds(case: Case, law: Callable[[Case], None] = check) -> None:
    """Raises the failure of a small case that fails as this one does."""
    try:
        law(case)
    except Exception as error:
        small = shrunk(case, law)
        raise AssertionError(f"{error}\n{small!r}") from error
