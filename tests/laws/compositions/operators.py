"""Random operators: each of the kinds that there are, if something in the graph fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.laws.compositions.functions import MAPPERS, PREDICATES
from tests.laws.compositions.graphs import Kind, Step, Windows

if TYPE_CHECKING:
    from tests.laws.compositions.drawing import Drawing

SHORT = 12  # ms: a history for which some records are too late

FAILING = ("filter", "filter_not", "map_values", "map", "flat_map", "flat_map_values", "peek")

Draw = Callable[["Drawing"], Step | None]


def may_fail(step: Step, parents: Sequence[Kind]) -> bool:
    """Whether it has a function that may raise, such that it is clear what is skipped then."""
    shapes = [kind.shape for kind in parents]
    if step.op in ("join", "fk"):
        clear = shapes[0] == "table" or shapes in (["stream", "table"], ["stream", "global"])
        return step.form == "call" and clear
    if step.op == "aggregate":
        return step.fn in ("aggregate", "cogroup") or (step.fn == "reduce" and shapes[0] == "stream")
    expressed = step.form == "expr" and step.op in ("filter", "filter_not", "map_values")
    return step.op in FAILING and (step.form == "call" or expressed)


def is_stream(kind: Kind) -> bool:
    return kind.shape == "stream"


def is_table(kind: Kind) -> bool:
    return kind.shape == "table"


def by_text(kind: Kind) -> bool:
    return kind.key == "text"


def _filter(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: kind.shape != "global")
    if parent is None:
        return None
    fn = d.rng.choice(list(PREDICATES))
    op = d.rng.choice(["filter", "filter", "filter_not"])
    store = is_table(d.kinds[parent]) and d.coin(0.3)
    return Step(
        op, (parent,), fn, d.form("call", "expr", "expr"), store=store, history=_history(d, parent, store)
    )


def _history(d: Drawing, parent: int, store: bool) -> int | None:
    return 100_000 if store and by_text(d.kinds[parent]) and d.coin(0.2) else None


def _map_values(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: kind.shape != "global")
    if parent is None:
        return None
    table = is_table(d.kinds[parent])
    store, declared = table and d.coin(0.3), table and d.coin(0.3)
    form, fn = d.form("call", "expr", "expr", "annotated"), d.rng.choice(list(MAPPERS))
    return Step(
        "map_values", (parent,), fn, form, store=store, declared=declared, history=_history(d, parent, store)
    )


def _select_key(d: Drawing) -> Step | None:
    parent = d.pick(is_stream)
    if parent is None:
        return None
    op = d.rng.choice(["select_key", "select_key", "map", "flat_map"])
    return Step(op, (parent,), form=_key_form(d, parent) if op == "select_key" else "call", by="s")


def _key_form(d: Drawing, parent: int) -> Any:
    """A text names a field of a row; of a null value it would fail."""
    kind = d.kinds[parent]
    return d.form("call", "expr", *(["field"] if kind.value == "row" and not kind.nulls else []))


def _split(d: Drawing) -> Step | None:
    parent = d.pick(is_stream)
    if parent is None:
        return None
    return Step("branch", (parent,), d.rng.choice(list(PREDICATES)), by=d.rng.choice(["some", "rest"]))


def _transform(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: is_stream(kind) and by_text(kind) and kind.placed and kind.typed)
    return None if parent is None else Step("transform", (parent,))


def _row_wise(d: Drawing) -> Step | None:
    parent = d.pick(is_stream)
    op = d.rng.choice(["flat_map_values", "branches", "peek", "present"])
    return (
        None
        if parent is None
        else Step(op, (parent,), d.rng.choice(list(PREDICATES)) if op == "branches" else "")
    )


def _merge(d: Drawing) -> Step | None:
    one = d.pick(is_stream)
    if one is None:
        return None
    kind = d.kinds[one]

    def fits(k: Kind) -> bool:
        own = k.own and kind.own and k.typed and kind.typed  # whether these are the same is not known
        return is_stream(k) and (k.value, k.key, k.size) == (kind.value, kind.key, kind.size) and not own

    other = d.other(fits)
    return None if other is None or other == one else Step("merge", (one, other))


def _by_key(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: is_stream(kind) and by_text(kind) and not kind.open)
    if parent is None:
        return None
    op = d.rng.choice(["repartition", "deduplicate", "process", "process_values"])
    kind = d.kinds[parent]
    if op == "deduplicate":
        by = d.rng.choice(["", "s"] if kind.placed else ["s"])
        form = _key_form(d, parent) if by else "call"
        return Step(op, (parent,), form=form, by=by, within=d.rng.choice([5, 20]))
    if op == "repartition":
        return Step(op, (parent,), declared=d.coin(0.5))
    return Step(op, (parent,)) if kind.placed else None


def _to_table(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: is_stream(kind) and by_text(kind))
    if parent is None:
        return None
    store = d.coin(0.4)
    history = d.rng.choice([None, None, 100_000, SHORT]) if store else None
    return Step("to_table", (parent,), declared=d.coin(0.3), store=store, history=history)


def _to_stream(d: Drawing) -> Step | None:
    parent = d.pick(is_table)
    if parent is None:
        return None
    by = d.rng.choice(["", "s"] if by_text(d.kinds[parent]) else ["", "s", "inner"])
    return Step("to_stream", (parent,), by=by, form=d.form("call", "expr") if by == "s" else "call")


def _suppress(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: is_table(kind) and not kind.versions and not kind.final)
    if parent is None:
        return None
    if d.kinds[parent].key in ("time", "session", "sliding"):
        return Step("suppress", (parent,), "closes")
    return Step("suppress", (parent,), "limit", within=d.rng.choice([5, 20]))


def _windows(d: Drawing) -> Windows:
    kind = d.rng.choice(["time", "session", "sliding", "unlimited"])
    size = d.rng.choice([10, 4])
    grace = d.rng.choice([0, 5, 30])
    close = kind != "unlimited" and d.coin(0.4)
    return Windows(kind, size, d.rng.choice([size, size // 2]), 0 if kind == "unlimited" else grace, close)


def _aggregate_stream(d: Drawing) -> Step | None:
    parent = d.pick(lambda kind: is_stream(kind) and by_text(kind))
    if parent is None:
        return None
    kind = d.kinds[parent]
    windows = _windows(d) if d.coin(0.5) else None
    fn = d.rng.choice(["count", "reduce", "aggregate", "agg", "agg"])
    by = d.rng.choice(["", "s"])
    return _aggregate(d, parent, kind, fn, by, windows)


def _aggregate(d: Drawing, parent: int, kind: Kind, fn: str, by: str, windows: Windows | None) -> Step | None:
    declared = d.coin(0.5)
    if fn == "agg" and not (kind.typed or declared):
        return None
    form = _key_form(d, parent) if by == "s" else "call"
    columns = _columns(d, is_stream(kind)) if fn == "agg" else ()
    return Step(
        "aggregate", (parent,), fn, form, d.coin(0.3), declared, by=by, windows=windows, columns=columns
    )


def _columns(d: Drawing, ordered: bool) -> tuple[str, ...]:
    """Aggregates of n, s and x. Of the rows of a table there is no order that every cut keeps."""
    n = d.rng.choice(["sum", "count", "min", "max", "approx"])
    s = d.rng.choice(["max", "min", "set", *(["last", "first", "list"] if ordered else [])])
    return n, s, d.rng.choice(["mean", "sum", "max", "min", "ratio", "distinct", "set", "list"])


def _aggregate_table(d: Drawing) -> Step | None:
    parent = d.pick(is_table)
    if parent is None:
        return None
    kind = d.kinds[parent]
    fn, by = d.rng.choice(
        [("count", "s"), ("aggregate", "s"), ("agg", "s"), ("reduce", "key, row"), ("aggregate", "key, row")]
        + ([("reduce", "s")] if kind.value == "int" else [])
    )
    return _aggregate(d, parent, kind, fn, by, None)


def _join_form(d: Drawing, one: int, other: int) -> Any:
    """Without a joiner, both sides have fields."""
    rows = d.kinds[one].value == d.kinds[other].value == "row"
    kept = ["keep-left", "keep-right", "prefixed", "prefixed"] if rows and d.coin(0.4) else []
    return d.form("call", "expr", "expr", "annotated", *kept)


def _cogroup(d: Drawing) -> Step | None:
    one = d.pick(lambda kind: is_stream(kind) and by_text(kind))
    other = d.other(lambda kind: is_stream(kind) and by_text(kind))
    if one is None or other is None or one == other:
        return None
    windows = _windows(d) if d.coin(0.4) else None
    return Step(
        "aggregate", (one, other), "cogroup", store=d.coin(0.3), declared=d.coin(0.5), windows=windows
    )


def _join_streams(d: Drawing) -> Step | None:
    one = d.pick(lambda kind: is_stream(kind) and by_text(kind))
    other = d.other(lambda kind: is_stream(kind) and by_text(kind))
    if one is None or other is None or one == other:
        return None
    fn = d.rng.choice(["inner", "left", "outer"])
    return Step(
        "join",
        (one, other),
        fn,
        _join_form(d, one, other),
        within=d.rng.choice([3, 10]),
        grace=d.rng.choice([0, 20]),
    )


def _join_table(d: Drawing) -> Step | None:
    one = d.pick(lambda kind: is_stream(kind) and by_text(kind))
    other = d.other(lambda kind: is_table(kind) and by_text(kind))
    if one is None or other is None:
        return None
    return Step("join", (one, other), d.rng.choice(["inner", "left"]), _join_form(d, one, other))


def _join_global(d: Drawing) -> Step | None:
    one = d.pick(is_stream)
    other = d.other(lambda kind: kind.shape == "global")
    if one is None or other is None:
        return None
    by = d.rng.choice(["call", "expr"])
    return Step("join", (one, other), d.rng.choice(["inner", "left"]), _join_form(d, one, other), by=by)


def _view(d: Drawing) -> Step | None:
    one, other = (d.other(lambda kind: kind.shape == "global") for _ in range(2))
    if one is None or other is None:
        return None
    form = _join_form(d, one, other).replace("prefixed", "keep-left")  # a view has no map_values
    return Step("view", (one, other), d.rng.choice(["inner", "left"]), form, by=_key_form(d, one))


def _join_tables(d: Drawing) -> Step | None:
    one = d.pick(is_table)
    if one is None:
        return None
    kind = d.kinds[one]
    other = d.other(lambda k: is_table(k) and (k.key, k.size) == (kind.key, kind.size))
    if other is None:
        return None
    fn = d.rng.choice(["inner", "left", "outer"])
    store, declared = d.coin(0.3), d.coin(0.3)
    return Step("join", (one, other), fn, _join_form(d, one, other), store, declared)


def _foreign_key(d: Drawing) -> Step | None:
    one = d.pick(is_table)
    other = d.other(lambda kind: kind.shape != "stream" and by_text(kind))
    if one is None or other is None:
        return None
    either = ["right", "outer"] if by_text(d.kinds[one]) and is_table(d.kinds[other]) else []
    fn, by = d.rng.choice(["inner", "left", *either]), _key_form(d, one)
    return Step("fk", (one, other), fn, _join_form(d, one, other), d.coin(0.3), d.coin(0.3), by=by)


def _join_many(d: Drawing) -> Step | None:
    one = d.pick(is_table)
    others = [d.other(lambda kind: is_table(kind) and by_text(kind)) for _ in range(2)]
    if one is None or None in others:
        return None
    fn, by = d.rng.choice(["inner", "left"]), _key_form(d, one)
    return Step("many", (one, *others), fn, d.form("call", "expr"), d.coin(0.3), d.coin(0.3), by=by)  # type: ignore[arg-type]


MEETING: list[tuple[Draw, float]] = [
    (one, 1.0)
    for one in (_join_streams, _join_streams, _join_tables, _foreign_key, _join_table, _merge, _cogroup)
]
"""Operators of two streams or tables."""
OPERATORS: list[tuple[Draw, float]] = [
    *[(_filter, 1.0)] * 3,
    (_map_values, 1.0),
    *[(_aggregate_stream, 1.0)] * 3,
    *[(_aggregate_table, 1.0)] * 4,
    *[(_join_table, 1.0)] * 2,
    (_join_streams, 0.7),
    (_join_tables, 0.5),
    (_foreign_key, 0.6),
    (_join_many, 0.4),
    (_join_global, 0.6),
    (_cogroup, 0.6),
    (_view, 0.6),
    (_split, 0.4),
    (_transform, 0.3),
    (_merge, 0.8),
    (_by_key, 1.0),
    (_to_table, 1.0),
    (_to_stream, 0.8),
    (_suppress, 0.7),
    *[(_select_key, 0.8), (_row_wise, 0.7)],
]
