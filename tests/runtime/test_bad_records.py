"""What cannot be decoded, and what a function fails on, is let go alone: in any cut as one record at a time.

Records are bytes, good and bad ones; functions are callables and expressions, and fail on some values. Those of table
operators fail on none: such an operator looks at the last change of a row in a batch only. Timestamps rise, for a
record that cannot be decoded moves no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs, with_headers

TEXT, JSON, INT, BYTES = serdes.string(), serdes.json(), serdes.int64(), serdes.bytes()
WAITING, EAGER = cs.JoinWindows.of(3, grace=2), cs.JoinWindows.of(3, eager=True)
SIDES = ("left", "right")
TOPICS = ("out", "beside", "undecodable", "failed")
Steps = tuple[tuple[str, bool], ...]
"""Names of `STEPS`, and whether the function of each is an expression."""


@dataclass(frozen=True)
class Row:
    n: int
    x: str = ""


@dataclass(frozen=True)
class Id:
    id: int


ROW, ID = serdes.json(Row), serdes.json(Id)
NUMBERS = (1, 2, 3, 4, 1, 2, 4)
OBJECTS = [
    *(b'{"n":%d}' % n for n in NUMBERS),
    *(b'{"n": 2,"x":"y"}', b'{"\\u006e":4}', b'{"n":1,"n":2}', b"null", b" null ", b"", b"[1]", b'"text"', b"5"),
    *(b'{"x":"y"}', b"{}", b'{"n":null}', b'{"n":"x"}', b'{"n":1.5}', b'{"n":true}', b'{"n":99999999999999999999}'),
    *(b'{"n":', b'{"n":1,"x":1e999}', b'{"n":2,"x":{"\xff":1}}', b'{"n":1,"x":"\xff"}', b'{"n":2,"x":[1]}'),
]  # fmt: skip
VALUES: dict[str, tuple[Any, list[bytes]]] = {
    "text": (TEXT, [*(b"%d" % n for n in NUMBERS), b"x", b"\xff", b"", b"null"]),
    "json": (JSON, OBJECTS),
    "row": (ROW, OBJECTS),
    "int": (INT, [*(n.to_bytes(8, "big") for n in (*NUMBERS, 1 << 62)), b"1", b""]),
}
KEYS: dict[str, tuple[Any, list[bytes], Callable[[int], Any], type[pl.DataType] | None]] = {
    "text": (TEXT, [b"1", b"1", b"2", b"\xff"], str, pl.String),
    "json": (JSON, [b"1", b" 1", b"2", b'{"id":1}', b'{"\\u0069d": 1}', b"{", b"null"], int, None),
    "id": (ID, [b'{"id":1}', b'{"id": 1}', b'{"\\u0069d":1}', b'{"id":2}', b'{"id":"x"}', b"[1]"], Id, None),
    "int": (INT, [*(n.to_bytes(8, "big") for n in (1, 1, 2)), b"1"], int, pl.Int64),
}
"""Serdes, and bytes, most of which they read; how a number becomes a key: by a callable, and as a column."""
JOINS = {
    "stream-stream": ("join", "left_join", "outer_join"),
    "stream-stream, eager": ("join", "left_join", "outer_join"),
    "stream-table": ("join", "left_join"),
    "stream-global": ("join", "left_join"),
    "table-table": ("join", "left_join", "outer_join"),
    "table-table, foreign key": ("join", "left_join"),
    "table-table, many": ("join_many", "left_join_many"),
    "table-global": ("join", "left_join"),
}


def number(value: Any) -> int:
    """The number in a value. Fails on 3, and where there is none."""
    found = value["n"] if isinstance(value, dict) else getattr(value, "n", value)
    found = int(found) if isinstance(found, str) else found
    if type(found) is not int or found == 3:
        raise ValueError("no number")
    return found


def some_number(value: Any) -> int:
    """Likewise; fails on nothing."""
    try:
        return number(value)
    except Exception:
        return 0


def pair(left: Any, right: Any) -> Any:
    return {"n": number(left) + (0 if right is None else number(right))}


def some_pair(left: Any, right: Any) -> Any:
    return {"n": some_number(left), "of": some_number(right)}


@dataclass(frozen=True)
class Flow:
    """A stream or table ``of`` values of a serde; ``key``: the name of that of its keys.

    ``typed``: whether the type of the values is declared, so that expressions can read them.
    """

    of: Any
    serde: Any
    key: str
    typed: bool

    def number(self, column: str = "value") -> pl.Expr:
        """As the function of this name; fails on other numbers."""
        whole = pl.col(column)
        if self.serde in (JSON, ROW):
            whole = pl.col("n") if column == "value" else whole.struct.field("n")
        return (whole.cast(pl.Int64) - 1).cast(pl.UInt8).cast(pl.Int64) + 1

    def key_of(self, n: int) -> Any:
        return KEYS[self.key][2](n % 2 + 1)

    def now(self, of: Any, **changed: Any) -> Flow:
        return replace(self, of=of, **changed)

    def written(self, of: Any) -> Flow:
        """After the values were written in their serde."""
        return self.now(of, typed=self.serde is not JSON)

    def stepped(self, steps: Steps) -> Flow:
        flow = self
        for name, expressed in steps:
            flow = STEPS[name](flow, expressed and flow.typed)
        return flow

    def sink(self, topic: str) -> None:
        self.of.to(topic, cs.Produced(key=KEYS[self.key][0], value=self.serde))

    def stored(self, store: str) -> cs.Materialized:
        return cs.Materialized(store=store, key=KEYS[self.key][0], value=self.serde)


def filtered(flow: Flow, expressed: bool) -> Flow:
    return flow.now(flow.of.filter(flow.number() > 1 if expressed else lambda value: number(value) > 1))


def boxed(flow: Flow, expressed: bool) -> Flow:
    made = pl.struct(n=flow.number()) if expressed else lambda value: {"n": number(value)}
    return flow.now(flow.of.map_values(made), serde=JSON, typed=expressed)


def mapped(flow: Flow, _: bool) -> Flow:
    made = flow.of.map(lambda key, value: (flow.key_of(number(value)), value))
    return flow.now(made, typed=False)


def re_keyed(flow: Flow, expressed: bool) -> Flow:
    dtype = KEYS[flow.key][3] if expressed else None
    by = None if dtype is None else (flow.number() % 2 + 1).cast(dtype)
    return flow.now(flow.of.select_key((lambda value: flow.key_of(number(value))) if by is None else by))


def shuffled(flow: Flow, _: bool) -> Flow:
    repartitioned = cs.Repartitioned(key=KEYS[flow.key][0], value=flow.serde)
    return flow.written(flow.of.repartition(repartitioned))


def merged(flow: Flow, expressed: bool) -> Flow:
    even = flow.number() % 2 == 0 if expressed else lambda value: number(value) % 2 == 0
    return flow.now(flow.of.filter(even).merge(flow.of.filter_not(lambda value: some_number(value) % 2 == 0)))


def branched(flow: Flow, expressed: bool) -> Flow:
    large = flow.number() > 2 if expressed else lambda value: number(value) > 2
    return flow.now(flow.of.split().branch(large, "large").default_branch("rest")["rest"])


STEPS = {step.__name__: step for step in (filtered, boxed, mapped, re_keyed, shuffled, merged, branched)}


@dataclass(frozen=True)
class Plan:
    """A ``join`` of `JOINS`, by one of its methods. ``steps``: left and right of it, behind it, beside the left."""

    join: str
    method: str
    expressed: bool
    key: str
    values: tuple[str, str]
    steps: tuple[Steps, Steps, Steps, Steps]

    def topology(self) -> cs.Topology:
        builder = cs.StreamsBuilder()
        shapes = self.join.split(",")[0].split("-")
        sides = [self._source(builder, at, shape) for at, shape in enumerate(shapes)]
        if shapes[0] == "stream" or self.steps[0]:
            sides[0].stepped(self.steps[3]).sink("beside")
        left, right = (self._side(sides[at], at, shape) for at, shape in enumerate(shapes))
        joined = Flow(self._joined(left, right), JSON, self.key, self._summed(left, right))
        if shapes[0] == "stream":
            joined.stepped(self.steps[2]).sink("out")
        return builder.build()

    @property
    def in_turn(self) -> list[str]:
        """The sides in the order in which records of one time are taken: tables before streams."""
        shapes = dict(zip(SIDES, self.join.split(",")[0].split("-"), strict=True))
        return sorted(SIDES, key=lambda side: self.is_stream(SIDES.index(side), shapes[side]))

    def is_stream(self, at: int, shape: str) -> bool:
        """Whether the topic of this side is read as a stream."""
        return shape == "stream" or (shape == "table" and bool(self.steps[at]))

    def _source(self, builder: cs.StreamsBuilder, at: int, shape: str) -> Flow:
        """Without steps a table is read as one; else it is made of a stream."""
        serde = VALUES[self.values[at]][0]
        flow = Flow(None, serde, self.key, serde is not JSON)
        consumed = cs.Consumed(key=KEYS[self.key][0], value=flow.serde)
        if self.is_stream(at, shape):
            return flow.now(builder.stream(SIDES[at], consumed))
        read = builder.table if shape == "table" else builder.global_table
        return flow.now(read(SIDES[at], consumed, cs.Materialized(store=SIDES[at])))

    def _side(self, source: Flow, at: int, shape: str) -> Flow:
        if shape == "global" or not self.steps[at]:
            return source
        flow = source.stepped(self.steps[at])
        stored = flow.stored(SIDES[at])
        return flow.written(flow.of.to_table(materialized=stored)) if shape == "table" else flow

    def _summed(self, left: Flow, right: Flow) -> bool:
        """Whether the joiner is an expression."""
        return self.expressed and left.typed and right.typed

    def _joined(self, left: Flow, right: Flow) -> Any:
        join, key = getattr(left.of, self.method), KEYS[self.key][0]
        summed = pl.struct(n=left.number("left") + right.number("right").fill_null(0))
        joiner: Any = summed if self._summed(left, right) else pair
        stored = cs.Materialized(store="joined", key=key, value=JSON)

        def reference(value: Any) -> Any:
            return left.key_of(some_number(value))

        if self.join.startswith("stream-stream"):
            kept = cs.StreamJoined(key=key, value=left.serde, other_value=right.serde)
            return join(right.of, joiner, EAGER if "eager" in self.join else WAITING, kept)
        if self.join == "stream-table":
            return join(right.of, joiner, cs.Joined(key=key, value=left.serde))
        if self.join == "stream-global":
            return join(right.of, joiner, key_selector=lambda value: left.key_of(number(value)))
        if self.join == "table-table":
            return join(right.of, some_pair, materialized=stored)
        if self.join == "table-table, many":
            many = {"one": (right.of, reference)}
            return join(many, lambda row, others: some_pair(row, others["one"]), materialized=stored)
        return join(right.of, some_pair, foreign_key=reference, materialized=stored)


steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.booleans()), max_size=3).map(tuple)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    join = draw(st.sampled_from(sorted(JOINS)))
    method, expressed = draw(st.sampled_from(JOINS[join])), draw(st.booleans())
    key, *values = (draw(st.sampled_from(sorted(of))) for of in (KEYS, VALUES, VALUES))
    return Plan(
        join, method, expressed, key, (values[0], values[1]), draw(st.tuples(steps, steps, steps, steps))
    )


def records(plan: Plan, seed: int, count: int) -> Inputs:
    """They come from a seed, for drawing each would take too long. The first bytes are good, and more frequent."""
    rng, clock = Random(seed), 0
    found: Inputs = []
    good = rng.choice([0.0, 0.5, 0.9])

    def one_of(choices: list[bytes]) -> bytes | None:
        return None if rng.random() < 0.05 else rng.choice(choices[:2] if rng.random() < good else choices)

    for _ in range(count):
        clock += rng.randint(0, 2)
        at = rng.randrange(2)
        key, value = one_of(KEYS[plan.key][1]), one_of(VALUES[plan.values[at]][1])
        found.append({"side": SIDES[at], "key": key, "value": value, "ts": clock})
    return with_headers(found)


def names_of(node: Any) -> list[str]:
    """Of the store of a table."""
    store = None if node.shape == "stream" else getattr(node, "store", None)
    return [] if store is None else [store.name]


def run(plan: Plan, given_: Inputs, way: Way, settings: dict[str, Any]) -> tuple[list[Any], dict[str, int]]:
    """What each batch wrote, and the tables after it; how many records were let go."""
    topology, found = plan.topology(), []
    stores = [name for node in topology for name in names_of(node)]
    with way.driver(topology, **settings) as driver:
        topics = {side: driver.create_input_topic(side, BYTES, BYTES) for side in SIDES}
        results = {name: driver.create_output_topic(name, BYTES, BYTES) for name in TOPICS}
        for _, ended in way.pipe(driver, topics, given_):
            if ended:
                written = {name: list(map(repr, topic.read_records())) for name, topic in results.items()}
                tables = {
                    name: repr(sorted(map(repr, driver.get_key_value_store(name).all()))) for name in stores
                }
                found.append((written, tables))
        dropped = driver.metrics()["dropped"]
    return found, {why: rows for why, rows in dropped.items() if why.endswith(("undecodable", "failed"))}


def check(plan: Plan, given_: Inputs, way: Way, settings: dict[str, Any]) -> None:
    """Records of a topic are in one partition, so that they are the same at the same offsets."""
    way = replace(way, places=(0,))
    one_by_one = as_taken({"inputs": given_}, way, plan.in_turn)["inputs"]
    each, each_dropped = run(plan, one_by_one, replace(way, every=1, commits=frozenset()), settings)
    found, dropped = run(plan, given_, way, settings)
    start = 0
    for (written, tables), end in zip(found, way.ends(len(given_)), strict=True):
        for topic, got in written.items():
            assert Counter(got) == Counter(one for batch in each[start:end] for one in batch[0][topic])
        assert tables == each[end - 1][1]
        start = end
    assert dropped == each_dropped


BESIDE = Plan(
    "stream-global", "left_join", True, "json", ("row", "row"), ((("mapped", True),), (), (), (("branched", True),))
)  # fmt: skip
"""An expression reads a field of what a callable has read as a whole."""


@cases(3)
@given(plans(), st.integers(0, 2**32), st.integers(0, 40), ways(), st.booleans(), st.booleans())
@example(BESIDE, 4, 40, Way(every=1000), False, True)
def test_what_is_bad_is_let_go_alone(
    plan: Plan, seed: int, count: int, way: Way, unread: bool, unprocessed: bool
) -> None:
    settings = {
        "deserialization_errors": cs.DeadLetter("undecodable") if unread else "skip",
        "processing_errors": cs.DeadLetter("failed") if unprocessed else "skip",
    }
    check(plan, records(plan, seed, count), way, settings)
