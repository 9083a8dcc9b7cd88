"""Cases that failed once, as small as they could be made."""

from __future__ import annotations

from dataclasses import replace

from tests.evolution.changes.applications import App, Op, Sink
from tests.evolution.changes.cases import Case, Stage
from tests.evolution.changes.drawing import Item

GROUP = ("n sum", "s max", "t min")
FOUND: dict[str, Case] = {}


def found(name: str, before: App, after: App, *items: Item, later: tuple[Item, ...] = ()) -> None:
    FOUND[name] = Case((Stage(before, items, partitions=1), Stage(after, later, partitions=1)))


_T0, _T2 = Op("t0", "table", fn="plain"), Op("t2", "table", fn="plain")
_O0 = Op("o0", "fk", ("t0", "t2"), "of right", "left", ("s",), store=True)
_G = Op("g", "group", ("o0",), by=("s",), aggregates=GROUP)
found(
    "a group below a kept join",
    App((_T0, _T2, _O0), ()),
    App((_T0, _T2, _O0, _G), (Sink("more", "g"),)),
    Item("t0", "1", {"n": 1, "s": "2", "t": None, "u": 1}, 1),
    Item("t2", "2", {"n": 2, "s": "3", "t": None, "u": 1}, 2),
)

_J = Op("o", "fk", ("t2", "t2"), "of right", "inner", ("s",))
_R = Op("o", "fk", ("t2", "t2"), "of right", "right", ("s",))
found(
    "keys of another kind that are gone",
    App((_T2, _J), (Sink("out", "o"),)),
    App((_T2, _R), (Sink("out", "o"),)),
    Item("t2", "3", {"n": 2, "s": "3", "t": None, "u": 1}, 1),
)

_M = Op("o2", "many", ("t0", "t0"), "of first", "left", ("s",))
found(
    "another serde of the keys of a sink",
    App((_T0, _M), (Sink("out", "o2", "same", is_named=True),)),
    App((_T0, _M), (Sink("out", "o2", "same", "json", is_named=True),)),
    Item("t0", "2", {"n": 5, "s": None, "t": "1", "u": 3}, 24),
)
found(
    "nothing was ever written",
    App((_T2,), (Sink("out", "t2", is_named=True),)),
    App((_T2,), (Sink("out", "t2", key="json", is_named=True),)),
)

_E = Op("e0", "stream", fn="plain")
_W = Op("o0", "window", ("e0",), aggregates=GROUP, size=10)
found(
    "windows of another size",
    App((_E, _W), (Sink("out", "o0"),)),
    App((_E, replace(_W, size=4)), (Sink("out", "o0"),)),
    Item("e0", "2", {"n": 3, "s": "3", "t": "1", "u": 1}, 33),
)
found(
    "a new result of windows that were there",
    App((_E, replace(_W, store=True)), ()),
    App((_E, replace(_W, store=True)), (Sink("more", "o0"),)),
    Item("e0", "4", {"n": 2, "s": None, "t": "2", "u": 2}, 42),
)

_F = Op("o0", "fk", ("t0", "t0"), "summed", by=("t",))
found(
    "a table that becomes both sides of a join of many",
    App((_T0, _F, Op("o2", "many", ("o0", "t0"), "summed", by=("t",))), (Sink("out", "o2"),)),
    App((_T0, _F, Op("o2", "many", ("o0", "t0", "o0"), "summed", by=("t", "t"))), (Sink("out", "o2"),)),
    Item("t0", "2", {"n": 2, "s": "2", "t": "2", "u": 1}, 17),
)

_T0_JSON = replace(_T0, key="json")
_S = Op("o0", "many", ("t2", "t0"), "summed", "left", by=("t",))
found(
    "another serde of the keys of a table that is referred to",
    App((_T0, _T2, _S), (Sink("out", "o0"),)),
    App((_T0_JSON, _T2, _S), (Sink("out", "o0"),)),
    Item("t0", "3", {"n": 1, "s": "2", "t": None, "u": 3}, 28),
    Item("t2", "4", {"n": 2, "s": "1", "t": "3", "u": 3}, 41),
    later=(Item("t0", "3", {"n": 3, "s": "3", "t": "2", "u": 2}, 70),),
)
_K = Op("o0", "fk", ("t2", "t0"), "summed", "left", by=("t",))
found(
    "another serde of the keys of the right table",
    App((_T0, _T2, _K), (Sink("out", "o0"),)),
    App((_T0_JSON, _T2, _K), (Sink("out", "o0"),)),
    Item("t0", "3", {"n": 1, "s": "2", "t": None, "u": 3}, 28),
    Item("t2", "4", {"n": 2, "s": "1", "t": "3", "u": 3}, 41),
    later=(Item("t0", "3", {"n": 3, "s": "3", "t": "2", "u": 2}, 70),),
)

_T1 = Op("t1", "table", fn="plain")
_IN = Op("o0", "fk", ("t1", "t1"), "of right", "inner", ("s",))
_OUT = Op("o1", "join", ("t0", "o0"), "of right", "outer", store=True)
found(
    "a table that is kept twice, with versions",
    App((_T0, _T1, _IN, _OUT), (Sink("out", "o1"), Sink("rows", "t0"))),
    App((replace(_T0, history=20, store=True), _T1, _IN, _OUT), (Sink("out", "o1"), Sink("rows", "t0"))),
    Item("t0", "1", {"n": 1, "s": "2", "t": None, "u": 1}, 1),
    Item("t1", "1", {"n": 2, "s": "1", "t": None, "u": 1}, 2),
    later=(Item("t0", "1", {"n": 3, "s": "2", "t": None, "u": 1}, 3),),
)

_OF_ROW = Op("o0", "fk", ("t0", "t2"), "of right", by=("s",))
_SWAPPED = Op("o1", "map", ("o0",), "swapped", form="call", store=True)
_BY_S = Op("g", "group", ("o1",), by=("s",), aggregates=GROUP)
found(
    "a table that is kept for a group of what is stored below it",
    App((_T0, _T2, _OF_ROW, _SWAPPED), ()),
    App((_T0, _T2, _OF_ROW, _SWAPPED, _BY_S), (Sink("more", "g"),)),
    Item("t0", "1", {"n": 1, "s": "2", "t": None, "u": 1}, 1),
    Item("t2", "2", {"n": 2, "s": "3", "t": "1", "u": 1}, 2),
    later=(Item("t2", "2", {"n": 3, "s": "1", "t": "3", "u": 1}, 3),),
)
_V0 = replace(_T0, history=1000)
_MORE = Op("o1", "filter", ("t0",), "n > 2", "call")
_SELF = Op("o2", "join", ("t0", "o1"), "of right")
_LEFT = Op("o4", "join", ("t0", "o2"), "of right", "left")
found(
    "a side of a join whose rows are stored",
    App((_V0, replace(_MORE, store=True), _SELF, _LEFT), (Sink("out", "o4"),)),
    App((_V0, _MORE, _SELF, replace(_LEFT, store=True)), (Sink("out", "o4"),)),
    Item("t0", "1", {"n": 3, "s": "2", "t": None, "u": 1}, 1),
    later=(Item("t0", "1", {"n": 4, "s": "2", "t": None, "u": 1}, 3),),
)
_OF_T = Op("o0", "group", ("t0",), by=("t",), aggregates=GROUP, store=True)
_OF_MANY = Op("o1", "many", ("t0", "t0"), "summed", by=("s",), store=True)
_BOTH = Op("o2", "join", ("o0", "o1"), "of right", "left", store=True)
found(
    "a table that is kept in the round of a join with rows that are stored",
    App((_T0, _OF_T, _OF_MANY, _BOTH), ()),
    App((_T0, replace(_OF_T, by=("s",)), _OF_MANY, _BOTH), ()),
    Item("t0", "1", {"n": 3, "s": "2", "t": "1", "u": 1}, 1),
    Item("t0", "2", {"n": 2, "s": "2", "t": "3", "u": 1}, 2),
    later=(Item("t0", "1", {"n": 4, "s": "1", "t": None, "u": 1}, 3),),
)

_MAPPED = Op("o0", "map", ("t0",), "swapped", store=True)
_WITH = App((replace(_T0, store=True), _MAPPED), (Sink("out", "o0"),))
FOUND["a sink that goes and comes back"] = Case(
    (
        Stage(
            _WITH,
            tuple(Item("t0", key, {"n": 1, "s": "2", "t": None, "u": 1}, 1) for key in "12"),
            partitions=1,
        ),
        Stage(replace(_WITH, sinks=()), (Item("t0", "1", None, 3),), partitions=1),
        Stage(_WITH, (), partitions=1),
    )
)
