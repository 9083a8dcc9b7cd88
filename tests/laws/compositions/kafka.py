"""Cases that Kafka's own driver can run, as `tests/oracle` reads them; and how its results compare with ours.

Left out is what Kafka does not have, and where a written decision differs:

- built-in aggregates, `deduplicate`, `join_many`, views, right and outer foreign-key joins, joins of tables with global
  tables: Kafka has none. Versioned tables: `tests/operators/table/oracle`.
- Left and outer joins of streams: how long a row waits to come out alone (semantics 8.1 to 8.3).
- Cogroups in windows: whose stream time closes them (8.22).
- One record that comes to a join, merge or cogroup on two ways: joins of tables show mixed rows in Kafka (8.8), and
  which repartition topic Kafka reads first is up to a heap.
- Of a table of which one record changes a row several times, Kafka passes on each change, and we the last one
  (2.2.2); of sessions and sliding windows where operators on tables read them. The rows are compared, and no stream
  is made of it.
- A time limit for what one record makes several changes of: all of them have one stream time here (decision 0038).
- Functions of tables that fail: what the row is then (3.9, `not-added` in 3.10).

The oracle keeps every table, aggregates and suppressed tables a second time: so Kafka knows the old rows that 8.23 to
8.25 are about. Its windows that come out when they close are retained for an hour (8.20).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

from tests.laws.compositions.drawing import Drawing, records
from tests.laws.compositions.graphs import EITHER, Case, Kind, Step, Way, kind_of, kinds_of
from tests.laws.compositions.operators import MEETING, OPERATORS
from tests.laws.compositions.running import by_key, fold, run
from tests.laws.compositions.several import ways_of

UNKNOWN = ("deduplicate", "many", "view")
ONE_BY_ONE = Way(each=True)


def kafka_case(rng: Random) -> Case:
    graph = KafkaDrawing(rng).graph()
    return Case(graph, records(rng, graph, kinds_of(graph)), ONE_BY_ONE)


class KafkaDrawing(Drawing):
    """Graphs that Kafka has, too. What is joined is of several sources: see `in_kafka`."""

    counts = (1, 2, 3, 3)
    operators = OPERATORS + MEETING * 6
    met: frozenset[int] = frozenset()
    """The sources of what was picked last: `other` has none of them."""

    def pick(self, fits: Callable[[Kind], bool]) -> int | None:
        self.met = frozenset()
        found = super().pick(fits)
        self.met = frozenset() if found is None else self.kinds[found].sources
        return found

    def other(self, fits: Callable[[Kind], bool]) -> int | None:
        return super().other(lambda kind: fits(kind) and not kind.sources & self.met)

    def allowed(self, step: Step) -> bool:
        parents = [self.kinds[parent] for parent in step.parents]
        if kind_of(step, len(self.steps), parents).crossing or not in_kafka(step, parents):
            return False
        graph = (*self.steps, step)
        several, merged = ways_of(graph)
        if step.op == "suppress" and step.fn == "limit" and several[step.parents[0]]:
            return False
        return not any(one.op == "to_stream" and merged[one.parents[0]] for one in graph)

    def source(self) -> Step:
        return replace(super().source(), history=None)

    def add(self, step: Step | None) -> None:
        """Whose functions may fail: what a table does then is a decision of ours (semantics 3.9)."""
        failing, self.failing = self.failing, self.failing and step is not None and self.of_streams(step)
        super().add(step)
        self.failing = failing

    def of_streams(self, step: Step) -> bool:
        return all(self.kinds[parent].shape == "stream" for parent in step.parents[:1])


def in_kafka(step: Step, parents: Sequence[Kind]) -> bool:
    """Whether Kafka has such a step, and means the same."""
    if step.op in UNKNOWN or step.fn == "agg" or step.history is not None:
        return False
    if step.op == "fk" and (step.fn in EITHER or parents[1].shape == "global"):
        return False
    if step.fn == "cogroup" and step.windows is not None and step.windows.kind != "unlimited":
        return False
    if step.op == "join" and step.fn != "inner" and parents[1].shape == "stream":
        return False
    return len(parents) < 2 or not parents[0].sources & parents[1].sources


def request(case: Case) -> dict[str, Any]:
    """A case as the oracle reads it."""
    steps = [
        {**asdict(step), "windows": None if step.windows is None else step.windows._asdict()}
        for step in case.graph
    ]
    items = [{"source": one.source, "key": one.key, "value": one.value, "ts": one.ts} for one in case.items]
    return {"operator": "graph", "graph": steps, "inputs": items}


def text(key: Any) -> Any:
    """A key as the oracle writes it."""
    return key if key is None or isinstance(key, str) else f"{key.key}@{key.start}-{key.end}"


def compare(case: Case, answer: Mapping[str, Any]) -> None:
    """After each record: the same records of streams and changes of tables, for each key in order.

    Of a table of which one record may change a row several times, the same rows.
    """
    kinds, merged = kinds_of(case.graph), ways_of(case.graph)[1]
    ours = run(case.graph, [[item] for item in case.items], ONE_BY_ONE)
    tables: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
    for item, made, expected in zip(case.items, ours.batches, answer["expected"], strict=True):
        for number, records_ in made.items():
            found = [(text(key), value, ts) for key, value, ts in records_]
            right = [(key, value, ts) for step, key, value, ts in expected if step == number]
            what = f"step {number} ({case.graph[number]!r}), {item!r}: found {found}, Kafka gives {right}"
            if merged[number]:
                rows = tables.setdefault(number, ({}, {}))
                fold(rows[0], found)
                fold(rows[1], right)
                assert rows[0] == rows[1], what
            else:
                mixed = kinds[number].mixed
                assert by_key(found, mixed) == by_key(right, mixed), what
