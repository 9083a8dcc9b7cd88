"""Random compositions of table operators, what they mean as relations, and the topologies they are.

A tree is a source or an operator over trees. Its meaning is a plain function from the rows of the sources to
rows; nothing of order, batches or state. Values are text, parts between semicolons; a part may be a foreign key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import polars as pl
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.strategies import KEYS, VALUES, Inputs, records

Rows = dict[str, str]
TEXT = serdes.string()
GLOBAL = "global"
"""The topic of the global table."""
SIDES = ("left", "right", GLOBAL, "third")
"""In the order in which records of one time are taken: the third topic is a stream, and tables come before streams."""

PREDICATES: dict[str, tuple[Callable[[str], bool], pl.Expr]] = {
    "has x": (lambda value: "x" in value, pl.col("value").str.contains("x", literal=True)),
    "no y": (lambda value: "y" not in value, ~pl.col("value").str.contains("y", literal=True)),
    "starts with a": (lambda value: value.startswith("a"), pl.col("value").str.starts_with("a")),
}
MAPPERS: dict[str, tuple[Callable[[str], str | None], pl.Expr]] = {
    "rotate": (
        lambda value: ";".join([*value.split(";")[1:], value.split(";")[0]]),
        pl.concat_str(
            pl.col("value").str.split(";").list.slice(1).list.join(";"),
            pl.lit(";"),
            pl.col("value").str.split(";").list.first(),
        ),
    ),
    "no z": (
        lambda value: None if "z" in value else value,
        pl.when(~pl.col("value").str.contains("z")).then("value"),
    ),
    "mark": (lambda value: value + ";b", pl.col("value") + ";b"),
}
PARTITIONERS: dict[str, Callable[[str, int], int] | None] = {
    "hash": None,
    "crc": lambda key, count: zlib.crc32(key.encode()) % count,
    "last": lambda key, count: count - 1,
}


def extract(index: int) -> Callable[[str], str | None]:
    """The part of that number as a foreign key; None where it is none."""

    def part(value: str) -> str | None:
        parts = value.split(";")
        return parts[index] if index < len(parts) and parts[index] in KEYS else None

    return part


def extracted(index: int) -> pl.Expr:
    part = pl.col("value").str.split(";").list.get(index, null_on_oob=True)
    return pl.when(part.is_in(list(KEYS))).then(part)


def join_values(left: str | None, right: str | None) -> str:
    return f"{'∅' if left is None else left};{'∅' if right is None else right}"


def join_many_values(left: str, rows: Mapping[str, str | None]) -> str:
    return join_values(join_values(left, rows["one"]), rows["two"])


MANY_JOINER = pl.concat_str(
    pl.col("left"), pl.col("one").fill_null("∅"), pl.col("two").fill_null("∅"), separator=";"
)
JOINER = pl.concat_str(pl.col("left").fill_null("∅"), pl.lit(";"), pl.col("right").fill_null("∅"))


@dataclass(frozen=True)
class Tree:
    """``what`` it is, over ``parts``; ``settings`` of it; whether it is ``stored`` under a name, and ``expressed``."""

    what: str
    parts: tuple[Tree, ...] = ()
    settings: tuple[Any, ...] = ()
    stored: bool = False
    expressed: bool = False

    def __str__(self) -> str:
        inner = ", ".join([*map(str, self.parts), *map(str, self.settings)])
        return f"{self.what}{'*' if self.stored else ''}({inner})"


SOURCES = [
    Tree("table", settings=("left",)),
    Tree("table", settings=("right",)),
    Tree("re-keyed", settings=("third",)),
]


@st.composite
def operators(draw: st.DrawFn, trees: st.SearchStrategy[Tree]) -> Tree:
    what = draw(
        st.sampled_from(
            ["filter", "filter_not", "map_values", "join", "foreign key", "global", "through", "many"]
        )
    )
    stored, expressed = draw(st.booleans()), draw(st.booleans())
    first = draw(trees)
    if what in ("filter", "filter_not"):
        return Tree(what, (first,), (draw(st.sampled_from(sorted(PREDICATES))),), stored, expressed)
    if what == "map_values":
        return Tree(what, (first,), (draw(st.sampled_from(sorted(MAPPERS))),), stored, expressed)
    if what == "through":
        return Tree(what, (first,), (), stored)
    if what == "global":
        by = (draw(st.sampled_from(["inner", "left"])), draw(st.integers(0, 1)))
        return Tree(what, (first,), by, stored, expressed)
    second = draw(trees)
    if what == "join":
        return Tree(
            what, (first, second), (draw(st.sampled_from(["inner", "left", "outer"])),), stored, expressed
        )
    if what == "many":
        parts = (first, second, draw(trees))
        return Tree(what, parts, (draw(st.sampled_from(["inner", "left"])),), stored, expressed)
    kind, index = draw(st.sampled_from(["inner", "left"])), draw(st.integers(0, 1))
    placed = (draw(st.sampled_from(sorted(PARTITIONERS))), draw(st.sampled_from(sorted(PARTITIONERS))))
    return Tree(what, (first, second), (kind, index, *placed), stored, expressed)


trees = st.recursive(st.sampled_from(SOURCES), operators, max_leaves=6)


@st.composite
def inputs_of_trees(draw: st.DrawFn) -> Inputs:
    part = st.sampled_from([*KEYS, "-"])
    side = (
        st.none() | st.sampled_from(KEYS) | st.sampled_from(KEYS),
        st.none() | st.builds("{};{};{}".format, part, part, st.sampled_from(VALUES)),
    )
    return draw(records(dict.fromkeys(SIDES, side)))


@st.composite
def many_inputs(draw: st.DrawFn) -> Inputs:
    """Some dozens of records of a dozen keys; they come from a seed, for drawing each would take too long."""
    rng = Random(draw(st.integers(0, 2**32)))
    part = [*KEYS, "-"]
    return [
        {
            "side": rng.choice(SIDES),
            "key": rng.choice(KEYS) if rng.random() < 0.5 else f"k{rng.randrange(9)}",
            "value": None if rng.random() < 0.2 else f"{rng.choice(part)};{rng.choice(part)};{number}",
            "ts": number,
        }
        for number in range(draw(st.sampled_from([20, 60, 150])))
    ]


# What a tree means


def meaning(tree: Tree, inputs: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows after all inputs, in the order in which they are taken."""
    inputs = list(inputs)
    if tree.what == "table":
        return folded((i["key"], i["value"]) for i in inputs if i["side"] == tree.settings[0])
    if tree.what == "re-keyed":
        return folded(
            (re_key(i["key"], i["value"]), i["value"]) for i in inputs if i["side"] == tree.settings[0]
        )
    tables = [meaning(part, inputs) for part in tree.parts]
    if tree.what == "global":
        tables.append(folded((i["key"], i["value"]) for i in inputs if i["side"] == GLOBAL))
    return present(MEANINGS[tree.what](tree, *tables))


def folded(records: Iterable[tuple[str | None, str | None]]) -> Rows:
    return present({key: value for key, value in records if key is not None})


def present(rows: Mapping[Any, Any]) -> Rows:
    return {key: value for key, value in rows.items() if value is not None}


def re_key(key: str | None, value: str | None) -> str | None:
    """A new key for each record of a stream; a null value keeps the key, and deletes under it."""
    return key if value is None else extract(1)(value)


def joined(tree: Tree, left: Rows, right: Rows) -> dict[str, str | None]:
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}
    return {key: join_values(left.get(key), right.get(key)) for key in keys[tree.settings[0]]}


def joined_by_reference(tree: Tree, left: Rows, right: Rows) -> dict[str, str | None]:
    partners = {key: right.get(extract(tree.settings[1])(row) or "none") for key, row in left.items()}
    return {
        key: join_values(left[key], partner)
        for key, partner in partners.items()
        if partner is not None or tree.settings[0] == "left"
    }


def joined_with_many(tree: Tree, left: Rows, one: Rows, two: Rows) -> dict[str, str | None]:
    rows = {
        key: {"one": one.get(extract(0)(row) or "none"), "two": two.get(extract(1)(row) or "none")}
        for key, row in left.items()
    }
    left_join = tree.settings[0] == "left"
    return {
        key: join_many_values(left[key], named)
        for key, named in rows.items()
        if left_join or None not in named.values()
    }


MEANINGS: dict[str, Callable[..., Mapping[str, str | None]]] = {
    "filter": lambda tree, rows: {k: v for k, v in rows.items() if PREDICATES[tree.settings[0]][0](v)},
    "filter_not": lambda tree, rows: {
        k: v for k, v in rows.items() if not PREDICATES[tree.settings[0]][0](v)
    },
    "map_values": lambda tree, rows: {k: MAPPERS[tree.settings[0]][0](v) for k, v in rows.items()},
    "through": lambda tree, rows: rows,
    "join": joined,
    "foreign key": joined_by_reference,
    "global": joined_by_reference,
    "many": joined_with_many,
}


# What topology it is


@dataclass
class Builder:
    """Builds each different tree once: what is the same in two places is one node, read twice."""

    builder: cs.StreamsBuilder = field(default_factory=cs.StreamsBuilder)
    made: dict[Tree, Any] = field(default_factory=dict)
    shared: Any = None
    """The global table."""

    def topology(self, tree: Tree) -> cs.Topology:
        self.table_of(tree).to_stream().to("results", cs.Produced(key=TEXT, value=TEXT))
        return self.builder.build()

    def table_of(self, tree: Tree) -> Any:
        """The table, after all sources, which are there even if the tree does not read them."""
        for source in SOURCES:
            self.table(source)
        self.shared = self.builder.global_table(GLOBAL, cs.Consumed(key=TEXT, value=TEXT))
        return self.table(tree)

    def table(self, tree: Tree) -> Any:
        if tree not in self.made:
            self.made[tree] = getattr(self, "_" + tree.what.replace(" ", "_").replace("-", "_"))(tree)
        return self.made[tree]

    def _store(self, tree: Tree) -> cs.Materialized:
        name = f"store-{len(self.made)}" if tree.stored else None
        return cs.Materialized(store=name, key=TEXT, value=TEXT)

    def _table(self, tree: Tree) -> Any:
        return self.builder.table(tree.settings[0], cs.Consumed(key=TEXT, value=TEXT))

    def _re_keyed(self, tree: Tree) -> Any:
        stream = self.builder.stream(tree.settings[0], cs.Consumed(key=TEXT, value=TEXT))
        return stream.select_key(lambda key, value: re_key(key, value)).to_table(
            materialized=self._store(tree)
        )

    def _filter(self, tree: Tree) -> Any:
        predicate = PREDICATES[tree.settings[0]][tree.expressed]
        return self.table(tree.parts[0]).filter(predicate, materialized=self._store(tree))

    def _filter_not(self, tree: Tree) -> Any:
        predicate = PREDICATES[tree.settings[0]][tree.expressed]
        return self.table(tree.parts[0]).filter_not(predicate, materialized=self._store(tree))

    def _map_values(self, tree: Tree) -> Any:
        mapper = MAPPERS[tree.settings[0]][tree.expressed]
        return self.table(tree.parts[0]).map_values(mapper, materialized=self._store(tree))

    def _through(self, tree: Tree) -> Any:
        return self.table(tree.parts[0]).to_stream().to_table(materialized=self._store(tree))

    def _join(self, tree: Tree) -> Any:
        left, right = map(self.table, tree.parts)
        method = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[tree.settings[0]]
        return method(right, JOINER if tree.expressed else join_values, materialized=self._store(tree))

    def _foreign_key(self, tree: Tree) -> Any:
        left, right = map(self.table, tree.parts)
        kind, index, own, other = tree.settings
        return (left.join if kind == "inner" else left.left_join)(
            right,
            JOINER if tree.expressed else join_values,
            foreign_key=extracted(index) if tree.expressed else extract(index),
            table_joined=cs.TableJoined(partitioner=PARTITIONERS[own], other_partitioner=PARTITIONERS[other]),
            materialized=self._store(tree),
        )

    def _global(self, tree: Tree) -> Any:
        left = self.table(tree.parts[0])
        kind, index = tree.settings
        return (left.join if kind == "inner" else left.left_join)(
            self.shared,
            JOINER if tree.expressed else join_values,
            foreign_key=extracted(index) if tree.expressed else extract(index),
            materialized=self._store(tree),
        )

    def _many(self, tree: Tree) -> Any:
        left, one, two = map(self.table, tree.parts)
        keys = [extracted(index) if tree.expressed else extract(index) for index in (0, 1)]
        return (left.join_many if tree.settings[0] == "inner" else left.left_join_many)(
            {"one": (one, keys[0]), "two": (two, keys[1])},
            MANY_JOINER if tree.expressed else join_many_values,
            materialized=self._store(tree),
        )
