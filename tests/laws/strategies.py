"""Random cases for the laws: few keys, moves, deletes, nulls, records out of order; partitions; cuts.

Every strategy gives a *case* in the format of the recorded vectors, so the reference, the driver and Spark
can run it as it is. Timestamps are small; a record lies some milliseconds behind the clock now and then.

The values of stream records are all different, so that every result names the two records it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

JOINER = {"template": "{left},{right}", "missing": "∅"}
PICKY_JOINER = {**JOINER, "null_if": "y"}  # gives None where a "y" is on either side
EXTRACTOR = {"kind": "split", "sep": ";", "index": 0, "null_if": "-"}

Case = dict[str, Any]
Inputs = list[dict[str, Any]]

KEYS = ("a", "b", "c")
FOREIGN_KEYS = ("1", "2", "3")
VALUES = ("x", "y", "z")
HISTORIES = st.sampled_from([None, None, 4, 1000])

keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(KEYS), st.none() | st.sampled_from(KEYS))
known_keys = st.sampled_from(KEYS)
rows = st.none() | st.sampled_from(VALUES)
left_rows = st.none() | st.builds(
    "{};{}".format, st.sampled_from((*FOREIGN_KEYS, "-")), st.sampled_from(VALUES)
)
foreign_keys = st.sampled_from(FOREIGN_KEYS) | st.none() | st.sampled_from(FOREIGN_KEYS)


@st.composite
def timestamps(draw: st.DrawFn, count: int, lag: int = 12, step: int = 4) -> list[int]:
    """Milliseconds, mostly rising by up to ``step``; a record may be up to ``lag`` behind the newest."""
    clock, found = 0, []
    for _ in range(count):
        clock += draw(st.integers(0, step))
        behind = draw(st.just(0) | st.integers(0, lag)) if lag else 0
        found.append(max(0, clock - behind))
    return found


@st.composite
def records(
    draw: st.DrawFn,
    sides: dict[str, tuple[Any, Any]],
    max_size: int = 16,
    lag: int = 12,
    step: int = 4,
    min_size: int = 0,
) -> Inputs:
    """Records of several inputs, interleaved. ``sides``: side → strategies of its keys and values."""
    chosen = draw(st.lists(st.sampled_from(sorted(sides)), min_size=min_size, max_size=max_size))
    times = draw(timestamps(len(chosen), lag, step))
    return [
        {"side": side, "key": draw(sides[side][0]), "value": draw(sides[side][1]), "ts": ts}
        for side, ts in zip(chosen, times, strict=True)
    ]


def with_headers(inputs: Inputs) -> Inputs:
    """Every record with a header of its own: its number."""
    return [{**item, "headers": {"number": f"{number:04x}"}} for number, item in enumerate(inputs)]


def case(operator: str, kind: str, inputs: Inputs, **params: Any) -> Case:
    joiner = params.pop("joiner", JOINER)
    return {"operator": operator, "type": kind, "params": {"joiner": joiner, **params}, "inputs": inputs}


@st.composite
def table_cases(
    draw: st.DrawFn, kinds: Sequence[str] = ("inner", "left", "outer"), versioned: bool = True, lag: int = 12
) -> Case:
    """Table-table joins, plain and versioned inputs in every mixture."""
    return case(
        "table-table",
        draw(st.sampled_from(kinds)),
        draw(records({"left": (keys, rows), "right": (keys, rows)}, lag=lag)),
        joiner=draw(st.sampled_from([JOINER, PICKY_JOINER])),
        left_versioned_ms=draw(HISTORIES) if versioned else None,
        right_versioned_ms=draw(HISTORIES) if versioned else None,
    )


@st.composite
def foreign_key_cases(
    draw: st.DrawFn, kinds: Sequence[str] = ("inner", "left"), versioned: bool = True, lag: int = 12
) -> Case:
    """Foreign-key joins: rows that move between foreign keys, to null and back; deletes on both sides."""
    return case(
        "table-table-fk",
        draw(st.sampled_from(kinds)),
        draw(records({"left": (keys, left_rows), "right": (foreign_keys, rows)}, lag=lag)),
        fk_extractor=EXTRACTOR,
        left_versioned_ms=draw(HISTORIES) if versioned else None,
        right_versioned_ms=draw(HISTORIES) if versioned else None,
    )


@st.composite
def chain_cases(draw: st.DrawFn, max_joins: int = 3) -> Case:
    """Chains of table joins over up to three tables: results as inputs, tables used more than once."""
    ends = ["left", "right", "third"]
    joins: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, max_joins))):
        foreign = draw(st.booleans())
        join: dict[str, Any] = {
            "id": f"j{number}",
            "operator": "table-table-fk" if foreign else "table-table",
            "type": draw(st.sampled_from(["inner", "left"] if foreign else ["inner", "left", "outer"])),
            "left": draw(st.sampled_from(ends)),
            "right": draw(st.sampled_from(ends)),
            "joiner": JOINER,
        }
        if foreign:
            join["fk_extractor"] = {**EXTRACTOR, "missing": None}
        joins.append(join)
        ends.append(join["id"])
    side = (keys, st.none() | st.builds("{};{}".format, known_keys | st.just("-"), st.sampled_from(VALUES)))
    used = {join[end] for join in joins for end in ("left", "right")} & {"left", "right", "third"}
    inputs = draw(records(dict.fromkeys(used, side)))
    plain = {"left_versioned_ms": None, "right_versioned_ms": None}
    return {**case(joins[-1]["operator"], joins[-1]["type"], inputs, **plain), "joins": joins}


@st.composite
def windows(draw: st.DrawFn) -> dict[str, int]:
    """Symmetric, one-sided and negative bounds; before + after is never negative."""
    before = draw(st.integers(-3, 8))
    after = draw(st.integers(max(-3, -before), 8))
    return {"before_ms": before, "after_ms": after, "grace_ms": draw(st.integers(0, 6))}


@st.composite
def stream_cases(
    draw: st.DrawFn,
    kinds: Sequence[str] = ("inner", "left", "outer"),
    eager: bool = False,
    on_time: bool = False,
    nulls: bool = True,
    self_join: bool = False,
    max_size: int = 16,
    busy: bool = False,
) -> Case:
    """Stream-stream joins. ``on_time``: no record arrives later than the grace period.

    ``busy``: dozens of records, about one a millisecond.
    """
    window = draw(windows())
    lag = window["grace_ms"] if on_time else 30
    side = (keys if nulls else known_keys, st.just("v"))
    sides = {"left": side} if self_join else {"left": side, "right": side}
    often = {"max_size": 40, "step": 2, "min_size": 25} if busy else {"max_size": max_size}
    inputs = with_headers(draw(records(sides, lag=lag, **often)))
    nothing = draw(st.sets(st.integers(0, max_size))) if nulls else set()
    for number, item in enumerate(inputs):
        item["value"] = None if number in nothing else f"{item['side'][0]}{number}"
    more = {"self_join": True} if self_join else {}
    kind = draw(st.sampled_from(kinds))
    return case("stream-stream", kind, inputs, window=window, eager=eager, **more)


@st.composite
def stream_table_cases(
    draw: st.DrawFn,
    kinds: Sequence[str] = ("inner", "left"),
    grace: bool = True,
    nulls: bool = True,
    busy: bool = False,
) -> Case:
    """Stream-table joins: plain table, versioned table, and with a grace period.

    ``busy``: dozens of records about two keys, every change of the table to another value.
    """
    history = draw(HISTORIES)
    waits = draw(st.none() | st.integers(0, history)) if grace and history == 4 else None
    waits = draw(st.none() | st.integers(0, 10)) if grace and history == 1000 else waits
    key = st.sampled_from(KEYS[1:]) if busy else keys if nulls else known_keys
    sides = {"left": (key, rows if nulls else st.sampled_from(VALUES)), "right": (key, rows)}
    inputs = with_headers(draw(records(sides, 40 if busy else 16, min_size=20 if busy else 0)))
    for number, item in enumerate(inputs):
        if item["value"] is not None and (busy or item["side"] == "left"):
            item["value"] = f"{item['value']}{number}"
    kind = draw(st.sampled_from(kinds))
    return case("stream-table", kind, inputs, table_versioned_ms=history, stream_grace_ms=waits)


@st.composite
def stream_global_cases(
    draw: st.DrawFn, kinds: Sequence[str] = ("inner", "left"), busy: bool = False
) -> Case:
    """Stream-global joins; the lookup key is the part of the value before the ";", "-" for null.

    ``busy``: dozens of records about two rows of the table, every change to another value.
    """
    mapper = {"kind": "split", "sep": ";", "index": 0, "null_if": "-"}
    sides = {"left": (keys, left_rows), "right": (foreign_keys, rows)}
    if busy:
        few = st.sampled_from(FOREIGN_KEYS[1:])  # of one hash, where it has one bit
        sides = {"left": (known_keys, st.builds("{};x".format, few)), "right": (few, rows)}
    inputs = with_headers(draw(records(sides, 40 if busy else 16, min_size=20 if busy else 0)))
    for number, item in enumerate(inputs):
        if item["side"] == "right" and item["value"] is not None:
            item["value"] = f"{item['value']}{number}"
    kind = draw(st.sampled_from(kinds))
    return case("stream-globaltable", kind, inputs, key_mapper=mapper, table_versioned_ms=None)


def cuts(count: int) -> st.SearchStrategy[list[int]]:
    """Input counts after which a batch ends, the last one included."""
    if count == 0:
        return st.just([])
    return st.sets(st.integers(1, count)).map(lambda ends: sorted({*ends, count}))


partitions = st.integers(1, 4)


def flipped(case: Case) -> Case:
    """The case with left and right exchanged, in the joiner and the window too."""
    params = dict(case["params"])
    joiner = params["joiner"]
    exchanged = (
        joiner["template"].replace("{left}", "\1").replace("{right}", "{left}").replace("\1", "{right}")
    )
    params["joiner"] = {**joiner, "template": exchanged}
    if "window" in params:
        window = params["window"]
        params["window"] = {**window, "before_ms": window["after_ms"], "after_ms": window["before_ms"]}
    else:
        histories = params["left_versioned_ms"], params["right_versioned_ms"]
        params["right_versioned_ms"], params["left_versioned_ms"] = histories
    other = {"left": "right", "right": "left"}
    inputs = [{**item, "side": other[item["side"]]} for item in case["inputs"]]
    return {**case, "params": params, "inputs": inputs}
