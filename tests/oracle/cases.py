"""Small random cases for every join, in the format of the recorded vectors, and what may be asked of them.

    case = random_case(random.Random(7), "table-table-fk", "left")
    agreement(case)    # EXACT: crossstream must give what Kafka gives, input by input

Two to fourteen records over few keys, so that nearly every record meets another: ties and disorder in time,
tombstones, the same row sent twice, null keys, foreign keys that are null, unknown, absent or move, versioned
tables with short histories, chains of two joins.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

Case = dict[str, Any]

JOINS: dict[str, tuple[str, ...]] = {
    "table-table": ("inner", "left", "outer"),
    "table-table-fk": ("inner", "left"),
    "stream-stream": ("inner", "left", "outer"),
    "stream-table": ("inner", "left"),
    "stream-globaltable": ("inner", "left"),
}
KEYS = ("a", "b", "c")
FOREIGN_KEYS = ("x", "y", "z")
HISTORIES = (None, None, None, 10, 30, 1000)
EXTRACTOR = {"kind": "split", "sep": ";", "index": 0, "null_if": "-", "missing": None}
JOINERS: tuple[dict[str, Any], ...] = (
    {"template": "{left}+{right}"},
    {"template": "{left}+{right}"},
    {"template": "{left}+{right}", "null_if": "9"},  # a joiner may return nothing
)


class Agreement(enum.Enum):
    """How the results of a case must agree with Kafka's, in batches of one record."""

    EXACT = "the same outputs after every input"
    DELAYED = (
        "the same pairs after every input; the same unmatched rows, which Kafka may emit later or not yet"
    )
    NONE = "a documented difference"


def random_case(
    rng: Random,
    operator: str,
    join_type: str,
    *,
    chain: bool | None = None,
    late: bool = False,
    eager: bool = False,
) -> Case:
    """One case of that join.

    ``chain``: two joins (tables only); None: sometimes. ``late``: records of a left or outer stream-stream
    join may be out of order. ``eager``: its unmatched rows come at once.
    """
    if join_type not in JOINS[operator]:
        raise ValueError(f"no {join_type} join for {operator}")
    if operator == "table-table":
        return table_table(rng, join_type, rng.random() < 0.25 if chain is None else chain)
    if operator == "table-table-fk":
        return foreign_key(rng, join_type, rng.random() < 0.25 if chain is None else chain)
    if operator == "stream-stream":
        return stream_stream(rng, join_type, late, eager)
    if operator == "stream-table":
        return stream_table(rng, join_type)
    return stream_global(rng, join_type)


# -- joins


def table_table(rng: Random, join_type: str, chained: bool) -> Case:
    params = {"joiner": rng.choice(JOINERS), **histories(rng, "left", "right")}
    sides = {side: Rows(rng, KEYS, side[0].upper()) for side in ("left", "right")}
    if not chained:
        return case("table-table", join_type, params, records(rng, sides))
    sides["third"] = Rows(rng, KEYS, "T")
    params |= histories(rng, "third")
    ends = rng.sample(["first", "third"], 2)
    joins = [
        join(
            "first",
            "table-table",
            rng.choice(JOINS["table-table"]),
            "left",
            "right",
            joiner=rng.choice(JOINERS),
        ),
        join("second", "table-table", join_type, *ends, joiner=rng.choice(JOINERS)),
    ]
    return case("table-table", join_type, params, records(rng, sides), joins)


def foreign_key(rng: Random, join_type: str, chained: bool) -> Case:
    """Left values are ``foreign key;another foreign key;number``."""
    extractor: dict[str, Any] = (
        EXTRACTOR if rng.random() < 0.95 else {"kind": rng.choice(["constant-null", "key"])}
    )
    params = {"joiner": rng.choice(JOINERS), "fk_extractor": extractor, **histories(rng, "left", "right")}
    sides = {"left": References(rng, KEYS, "L"), "right": Rows(rng, FOREIGN_KEYS, "R")}
    weights = {"left": 3, "right": 2}
    if not chained:
        return case("table-table-fk", join_type, params, records(rng, sides, weights))
    weights["third"] = 2
    params |= histories(rng, "third")
    return rng.choice([fk_then_primary, primary_then_fk, fk_then_fk])(rng, join_type, params, sides, weights)


def fk_then_primary(
    rng: Random, join_type: str, params: Case, sides: dict[str, Rows], weights: dict[str, int]
) -> Case:
    sides["third"] = Rows(rng, KEYS, "T")
    ends = rng.sample(["first", "third"], 2)
    joins = [
        join("first", "table-table-fk", join_type, "left", "right", **own(params)),
        join("second", "table-table", rng.choice(JOINS["table-table"]), *ends, joiner=rng.choice(JOINERS)),
    ]
    return case("table-table", joins[-1]["type"], params, records(rng, sides, weights), joins)


def primary_then_fk(
    rng: Random, join_type: str, params: Case, sides: dict[str, Rows], weights: dict[str, int]
) -> Case:
    sides["third"] = Rows(rng, KEYS, "T")
    joins = [
        join(
            "first",
            "table-table",
            rng.choice(JOINS["table-table"]),
            "left",
            "third",
            joiner=rng.choice(JOINERS),
        ),
        join("second", "table-table-fk", join_type, "first", "right", **own(params)),
    ]
    return case("table-table-fk", join_type, params, records(rng, sides, weights), joins)


def fk_then_fk(
    rng: Random, join_type: str, params: Case, sides: dict[str, Rows], weights: dict[str, int]
) -> Case:
    sides["third"] = Rows(rng, FOREIGN_KEYS, "T")
    joins = [
        join("first", "table-table-fk", rng.choice(JOINS["table-table-fk"]), "left", "right", **own(params)),
        join(
            "second",
            "table-table-fk",
            join_type,
            "first",
            "third",
            joiner=rng.choice(JOINERS),
            fk_extractor={**EXTRACTOR, "index": 1},
        ),
    ]
    return case("table-table-fk", join_type, params, records(rng, sides, weights), joins)


def stream_stream(rng: Random, join_type: str, late: bool, eager: bool) -> Case:
    before, after = rng.choice([0, 3, 10, 10]), rng.choice([0, 3, 10, 10])
    window = {"before_ms": before, "after_ms": after, "grace_ms": rng.choice([0, 0, 5, 20])}
    params = {"joiner": JOINERS[0], "window": window, "eager": eager}
    if join_type == "inner" and rng.random() < 0.2:
        params["self_join"] = True
    sides = {"left": Facts(rng, KEYS, "L")}
    if "self_join" not in params:
        sides["right"] = Facts(rng, KEYS, "R")
    ordered = "self_join" in params or not (late or eager or join_type == "inner")
    return case("stream-stream", join_type, params, records(rng, sides, ordered=ordered))


def stream_table(rng: Random, join_type: str) -> Case:
    history = rng.choice(HISTORIES)
    grace = None if history is None else rng.choice([None, 0, 5, 10])
    params = {"joiner": JOINERS[0], "table_versioned_ms": history, "stream_grace_ms": grace}
    sides = {"left": Facts(rng, KEYS, "L"), "right": Rows(rng, KEYS, "R")}
    return case("stream-table", join_type, params, records(rng, sides))


def stream_global(rng: Random, join_type: str) -> Case:
    mapper: dict[str, Any] = rng.choice([EXTRACTOR, EXTRACTOR, {"kind": "key"}, {"kind": "constant-null"}])
    params = {"joiner": JOINERS[0], "key_mapper": mapper, "table_versioned_ms": None}
    keys = KEYS if mapper["kind"] == "key" else FOREIGN_KEYS
    sides = {"left": References(rng, KEYS, "L", nulls=0.07), "right": Rows(rng, keys, "R")}
    return case("stream-globaltable", join_type, params, records(rng, sides))


# -- parts


@dataclass
class Rows:
    """The values of one table side: new ones, the last one of the key again, tombstones."""

    rng: Random
    keys: tuple[str, ...]
    letter: str
    nulls: float = 0.15
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    last: dict[str | None, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = self.keys[: self.rng.choice([1, 2, 2, 3])]

    def key(self) -> str | None:
        return None if self.rng.random() < 0.05 else self.rng.choice(self.keys)

    def value(self, key: str | None) -> str | None:
        if self.rng.random() < self.nulls:
            return None
        if key in self.last and self.rng.random() < 0.1:
            return self.last[key]
        self.last[key] = self.new()
        return self.last[key]

    def new(self) -> str:
        return f"{self.letter}{next(self.numbers)}"


class References(Rows):
    """Values that name two rows, ``x;y;L1``; a name may be unknown, "?", or null, "-", or not there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.known = FOREIGN_KEYS[: self.rng.choice([1, 2, 2, 3])]

    def new(self) -> str:
        if self.rng.random() < 0.05:
            return super().new()
        return ";".join([self.name(), self.name(), super().new()])

    def name(self) -> str:
        return self.rng.choice(self.known if self.rng.random() < 0.75 else ("?", "-"))


class Facts(Rows):
    """The records of a stream: a null value is rare and deletes nothing."""

    def value(self, key: str | None) -> str | None:
        return None if self.rng.random() < 0.07 else self.new()


def records(
    rng: Random, sides: dict[str, Any], weights: dict[str, int] | None = None, ordered: bool | None = None
) -> list[dict[str, Any]]:
    """``weights``: how often each side has a turn. ``ordered``: time never goes back; None: sometimes so."""
    times = clock(rng, rng.random() < 0.3 if ordered is None else ordered)
    names = [side for side in sides for _ in range((weights or {}).get(side, 1))]
    found = []
    for _ in range(max(rng.randint(2, 14), rng.randint(2, 14))):
        side = rng.choice(names)
        key = sides[side].key()
        found.append({"side": side, "key": key, "value": sides[side].value(key), "ts": next(times)})
    return found


def clock(rng: Random, ordered: bool) -> Iterator[int]:
    """Timestamps in ms from 100 on: ties, steps, leaps, and unless ordered, steps back."""
    now = 100
    while True:
        now += rng.choice([0, 1, 2, 3, 5, 10, 11, 40])
        yield (
            now if ordered or rng.random() < 0.6 else max(0, now - rng.choice([1, 2, 5, 10, 11, 30, 31, 60]))
        )


def histories(rng: Random, *sides: str) -> dict[str, int | None]:
    return {f"{side}_versioned_ms": rng.choice(HISTORIES) for side in sides}


def own(params: Case) -> dict[str, Any]:
    return {"joiner": params["joiner"], "fk_extractor": params["fk_extractor"]}


def join(name: str, operator: str, join_type: str, left: str, right: str, **settings: Any) -> dict[str, Any]:
    """One of a chain. Its result is stored, as every table of ours is: see `agreement`."""
    one = {"id": name, "operator": operator, "type": join_type, "left": left, "right": right, **settings}
    return {**one, "materialized": True}


def case(
    operator: str,
    join_type: str,
    params: dict[str, Any],
    inputs: list[dict[str, Any]],
    joins: list[dict[str, Any]] | None = None,
) -> Case:
    made: Case = {"id": "random", "operator": operator, "type": join_type, "params": params, "inputs": inputs}
    return made if joins is None else {**made, "joins": joins}


# -- what may be asked


def agreement(case: Case) -> Agreement:
    """By the documented decisions. Few random cases meet a difference; any case may be asked."""
    if uses_a_table_twice(case) or looks_up_what_is_not_stored(case) or deletes_at_once(case):
        return Agreement.NONE
    if case["operator"] == "stream-stream":
        return stream_stream_agreement(case)
    if (
        case["operator"] == "stream-table"
        and case["type"] == "left"
        and case["params"].get("stream_grace_ms") is not None
    ):
        failing = any(
            i["side"] == "left" and i["key"] is None and i["value"] is not None for i in case["inputs"]
        )
        return Agreement.NONE if failing else Agreement.EXACT
    return Agreement.EXACT


def uses_a_table_twice(case: Case) -> bool:
    """Kafka then shows states mixed from old and new rows (KAFKA-6443), and an inner join misses deletes."""
    read = [name for one in case.get("joins", []) for name in (one["left"], one["right"])]
    return len(read) != len(set(read))


def looks_up_what_is_not_stored(case: Case) -> bool:
    """Whether a join reads a left or outer primary-key join that is not stored.

    Kafka computes such a row again from the rows present, so it forgets the timestamp of a deleted one.
    """
    joins = case.get("joins", [])[:-1]
    return any(
        one["operator"] == "table-table" and one["type"] != "inner" and not one.get("materialized")
        for one in joins
    )


def deletes_at_once(case: Case) -> bool:
    """Whether a versioned row is deleted at the very timestamp it has.

    Kafka forgets such a delete: an older row that comes later counts as the latest.
    """
    names = {"right": ("right_versioned_ms", "table_versioned_ms")}
    params = case["params"]
    rows = set()
    for i in case["inputs"]:
        versioned = any(
            params.get(name) is not None for name in names.get(i["side"], (f"{i['side']}_versioned_ms",))
        )
        row = (i["side"], i["key"], i["ts"])
        if versioned and i["value"] is None and row in rows:
            return True
        if i["value"] is not None:
            rows.add(row)
    return False


def stream_stream_agreement(case: Case) -> Agreement:
    params = case["params"]
    window = params["window"]
    before, after, grace = window["before_ms"], window["after_ms"], window["grace_ms"]
    if before < 0 or after < 0:
        return Agreement.NONE  # bounds clamped at 0, retention too short
    retention = before + after + grace
    if 0 in (before, after) and apart(case, retention):
        return Agreement.NONE  # retention one millisecond short
    times = [i["ts"] for i in case["inputs"]]
    ordered = times == sorted(times)
    if params.get("self_join") and not ordered:
        return Agreement.NONE  # a late record does not find itself
    if params.get("eager") or case["type"] == "inner":
        return Agreement.EXACT
    return Agreement.DELAYED if ordered else Agreement.NONE  # grace, finality of unmatched rows


def apart(case: Case, distance: int) -> bool:
    """Whether two records of one side are that many ms apart."""
    seen = {(i["side"], i["ts"]) for i in case["inputs"]}
    return any((side, ts + distance) in seen for side, ts in seen)
