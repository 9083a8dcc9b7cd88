"""Runs a case through `TopologyTestDriver`, by nothing but the public API.

The topology is made from ``params`` and ``joins`` of the case; inputs go in one by one, each into a partition
of its topic chosen by its key. With several records in a batch the engine takes them as Kafka's tasks do, so
what the reference must be asked is the case in that order: `as_taken`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.conformance.functions import Style, user_extractor, user_joiner, user_selector
from tests.reference import Output, Result, hash_partition, run
from tests.reference.chain import SIDES, histories, joins_of, sides_in_turn
from tests.reference.records import key_bytes

Case = Mapping[str, Any]
METHODS = {"inner": "join", "left": "left_join", "right": "right_join", "outer": "outer_join"}
STORE = "result"


@dataclass(frozen=True, slots=True)
class Ran:
    """``outputs[i]``: what came out after input i, of a batch after its last input.

    ``store``: the rows of the result's store, None for streams. ``dropped``: comparable with Kafka's total;
    ``reasons``: the drops by the library's own names.
    """

    outputs: list[list[Output]]
    store: dict[Any, Any] | None
    dropped: int
    reasons: dict[Any, int]


def run_driver(
    case: Case,
    *,
    partitions: int = 1,
    ends: Sequence[int] | None = None,
    functions: Style = "callables",
    materialized: bool = True,
    place: int | None = None,
) -> Ran:
    """The case through the driver. ``ends``: input counts after which a batch ends; None: after each one.

    ``place``: the partition of all records in their topics; None: by their keys.
    """
    import crossstream as cs

    kinds = Serdes(case)
    tables = is_table(case)
    topology = build(case, functions, materialized and tables)
    every = 1 if ends is None else len(case["inputs"]) + 1
    outputs: list[list[Output]] = []
    with cs.TopologyTestDriver(topology, partitions=partitions, commit_every=every) as driver:
        topics = {
            side: driver.create_input_topic(side, *kinds.of(side)) for side in SIDES if is_used(case, side)
        }
        results = driver.create_output_topic("results", kinds.result_key, kinds.result_value)
        for count, item in enumerate(case["inputs"], 1):
            headers = [(name, bytes.fromhex(value)) for name, value in item.get("headers", {}).items()]
            partition = source_partition(item["key"], partitions) if place is None else place
            topics[item["side"]].pipe_input(item["key"], item["value"], item["ts"], headers, partition)
            if ends is not None and count in ends:
                driver.commit()
            outputs.append(read(results))
        driver.commit()
        assert results.is_empty or ends is not None, "a batch of one record ended late"
        if outputs:
            outputs[-1] += read(results)
        store = None
        if materialized and tables:
            keys = {output.key for one in outputs for output in one}
            store = driver.get_key_value_store(STORE).get_many(keys)
        metrics = driver.metrics()
    return Ran(outputs, store, metrics["dropped-records-total"], metrics["dropped"])


def read(topic: Any) -> list[Output]:
    return [Output(r.key, r.value, r.timestamp, tuple(r.headers)) for r in topic.read_records()]


def build(case: Case, functions: Style = "callables", materialized: bool = True) -> Any:
    """The topology of a case: inputs are topics called after their sides, the result goes to "results"."""
    import crossstream as cs

    builder = cs.StreamsBuilder()
    add(builder, case, functions, materialized)
    return builder.build()


def add(
    builder: Any, case: Case, functions: Style = "callables", materialized: bool = True, prefix: str = ""
) -> None:
    """Adds a case to a topology. ``prefix`` keeps its topics and stores apart from those of other cases."""
    import crossstream as cs

    kinds = Serdes(case)
    ends = {side: source(builder, case, side, kinds, prefix) for side in SIDES if is_used(case, side)}
    joins = joins_of(case)
    for join in joins:
        last = join is joins[-1]
        more = {"materialized": kinds.store(prefix)} if last and materialized else {}
        ends[join["id"]] = joined(join, ends[join["left"]], ends[join["right"]], functions, kinds, more)
    result = ends[joins[-1]["id"]]
    stream = result.to_stream() if is_table(case) else result
    stream.to(f"{prefix}results", cs.Produced(key=kinds.result_key, value=kinds.result_value))


def source(builder: Any, case: Case, side: str, kinds: Serdes, prefix: str = "") -> Any:
    import crossstream as cs

    key, value = kinds.of(side)
    topic = f"{prefix}{side}"
    consumed = cs.Consumed(key=key, value=value)
    if any(is_global(join) and join["right"] == side for join in joins_of(case)):
        return builder.global_table(topic, consumed)
    if side not in histories(case):
        return builder.stream(topic, consumed)
    history = histories(case)[side]
    if history is None:
        return builder.table(topic, consumed)
    return builder.table(
        topic, consumed, cs.Materialized(store=f"{topic}-versions", history_retention=history)
    )


def is_global(join: Mapping[str, Any]) -> bool:
    """Whether the right side is a global table: that of a stream, or (``global``) of a foreign-key join."""
    return join["operator"] == "stream-globaltable" or bool(join.get("global"))


def joined(
    join: Mapping[str, Any], left: Any, right: Any, functions: Style, kinds: Serdes, more: dict[str, Any]
) -> Any:
    import crossstream as cs

    method = getattr(left, METHODS[join["type"]])
    joiner = user_joiner(join["joiner"], functions)
    if join["operator"] == "table-table":
        return method(right, joiner, **more)
    if join["operator"] == "table-table-fk":
        keyed = {"keyed_by": cs.LeftOrRight} if has_either_key(join) else {}
        extractor = user_extractor(join["fk_extractor"], functions)
        return method(right, joiner, foreign_key=extractor, **keyed, **more)
    if join["operator"] == "stream-globaltable":
        return method(right, joiner, key_selector=user_selector(join["key_mapper"], functions))
    key, value = kinds.of_end(join["left"])
    serdes = {"key": key, "value": value, "other_value": kinds.of_end(join["right"])[1]}
    if join["operator"] == "stream-table":
        return method(right, joiner, cs.Joined(**serdes, grace=join.get("stream_grace_ms")))
    before, after, grace = (join["window"][name] for name in ("before_ms", "after_ms", "grace_ms"))
    windows = cs.JoinWindows(before=before, after=after, grace=grace, eager=join.get("eager", False))
    return method(right, joiner, windows, cs.StreamJoined(**serdes))


def has_either_key(join: Mapping[str, Any]) -> bool:
    """Whether the rows of a join belong to keys of either side."""
    return join["operator"] == "table-table-fk" and join["type"] in ("right", "outer")


class Serdes:
    """Serdes that fit the keys and values of a case: text, whole numbers, or JSON for a mixture."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.result_key = self.key_of(joins_of(case)[-1]["id"])
        self.result_value = self.made()

    def of(self, side: str) -> tuple[Any, Any]:
        """Key and value serde of an input side; one without records has the keys of the others."""
        inputs = [item for item in self.case["inputs"] if item["side"] == side]
        keys = [item["key"] for item in inputs or self.case["inputs"]]
        return self.fitting(keys), self.fitting(item["value"] for item in inputs)

    def of_end(self, end: str) -> tuple[Any, Any]:
        """Key and value serde of an input side or of an earlier join."""
        return self.of(end) if end in SIDES else (self.key_of(end), self.made())

    def key_of(self, end: str) -> Any:
        """Key serde of an input side or of a join: that of its left side, or of either side."""
        from crossstream import serdes

        if end in SIDES:
            return self.of(end)[0]
        join = next(join for join in joins_of(self.case) if join["id"] == end)
        key = self.key_of(join["left"])
        return serdes.left_or_right(key, self.key_of(join["right"])) if has_either_key(join) else key

    def made(self) -> Any:
        """The serde of what the joiner makes."""
        from crossstream import serdes

        return serdes.int64() if self.case["params"]["joiner"].get("op") == "sum" else serdes.string()

    def store(self, prefix: str = "") -> Any:
        import crossstream as cs

        return cs.Materialized(store=f"{prefix}{STORE}", key=self.result_key, value=self.result_value)

    @staticmethod
    def fitting(values: Iterable[Any]) -> Any:
        from crossstream import serdes

        kinds = {type(value) for value in values if value is not None}
        if kinds <= {str}:
            return serdes.string()
        return serdes.int64() if kinds == {int} else serdes.json()


def is_table(case: Case) -> bool:
    return str(case["operator"]).startswith("table-table")


def is_used(case: Case, side: str) -> bool:
    return any(side in (join["left"], join["right"]) for join in joins_of(case))


# Batches and partitions


def source_partition(key: Any, partitions: int) -> int:
    """The partition of its topic that a record is piped into: by key, so that a key stays in one."""
    return zlib.crc32(key_bytes(key)) % partitions


def as_taken(case: Case, ends: Sequence[int], partitions: int = 1) -> dict[str, Any]:
    """The case with the inputs of each batch in the order in which the engine takes them.

    Each source partition stays first-in-first-out; the partitions merge by the lowest running maximum of
    timestamps since the batch began, then by source (tables before streams) and partition.
    """
    taken: list[Any] = []
    sides = sides_in_turn(case)
    for batch in batches(case["inputs"], ends):
        newest: dict[tuple[int, int], int] = {}
        placed = []
        for item in batch:
            place = (sides.index(item["side"]), source_partition(item["key"], partitions))
            newest[place] = max(item["ts"], newest.get(place, 0))
            placed.append((newest[place], place, item))
        taken += [item for _, _, item in sorted(placed, key=lambda p: p[:2])]
    return {**case, "inputs": taken}


def batches(rows: Sequence[Any], ends: Sequence[int]) -> list[list[Any]]:
    """``rows`` cut after the given counts; what is left over is a last batch."""
    bounds = [0, *ends, len(rows)]
    return [list(rows[a:b]) for a, b in pairwise(bounds) if a < b]


def run_reference(case: Case, partitions: int = 1, ends: Sequence[int] | None = None) -> Result:
    """The reference on what the engine takes, with stream times by state partition."""
    taken = case if ends is None else as_taken(case, ends, partitions)
    return run(taken, hash_partition(partitions, key_bytes))


def per_batch(rows: Sequence[Sequence[Output]], ends: Sequence[int]) -> list[list[Output]]:
    """The outputs of each batch."""
    return [[output for one in batch for output in one] for batch in batches(rows, ends)]
