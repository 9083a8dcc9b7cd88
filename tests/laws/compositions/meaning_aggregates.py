"""What aggregations mean: of streams, in windows, and of the rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crossstream import Windowed
from tests.laws.compositions import functions as f
from tests.laws.compositions.aggregates import aggregated
from tests.laws.compositions.graphs import Kind, Step, Windows
from tests.laws.compositions.meaning import Events, Node, Unknown
from tests.reference.records import Change, Event
from tests.reference.windows import Functions, Windowing

NO_END = 2**63 - 1


def aggregation(step: Step, kind: Kind) -> Node:
    if kind.shape == "table":
        return Groups(step)
    if step.windows is None or step.windows.kind == "unlimited":
        return OfStream(step)
    if step.fn == "agg" and kind.nulls:
        raise Unknown  # whether a null value that is in no group moves stream time
    if step.fails:
        raise Unknown  # whether a record that is refused moves stream time
    return InWindows(step, step.windows)


def functions_of(step: Step) -> Functions:
    """For ``agg`` the aggregate is the list of the values."""
    if step.fn == "count":
        return Functions(lambda: 0, lambda n, value: n + 1, lambda left, right: left + right)
    if step.fn == "agg":
        return Functions(
            list, lambda values, value: [*(values or []), value], lambda left, right: [*left, *right]
        )
    if step.fn == "reduce":
        reduced = f.failing(f.reduced, step.fails)
        return Functions(
            lambda: None,
            lambda total, value: value if total is None else reduced(total, value),
            lambda left, right: right if left is None else f.reduced(left, right),
        )
    return Functions(f.nothing, f.failing(f.added, step.fails), f.merged)


class OfStream(Node):
    """Without windows, or in one that never ends."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.functions = functions_of(step)
        self.totals: dict[Any, Any] = {}

    def take(self, *events: Events) -> list[Event]:
        made: list[Event] = []
        for event in (event for parent in events for event in parent):
            assert not isinstance(event, Change)
            group = f.letter(event.value) if self.step.by else event.key
            if group is None or (
                event.value is None and (self.step.windows is None or self.step.fn == "agg")
            ):
                continue
            before = self.totals.get(group)
            try:
                total = self.functions.add(self.functions.first() if before is None else before, event.value)
            except f.Refused:
                continue
            self.totals[group] = total
            shown = aggregated(self.step.columns, total) if self.step.fn == "agg" else total
            key = group if self.step.windows is None else Windowed(group, 0, NO_END)
            old = self.rows.get(key)
            made += self.put(key, shown, event.ts if old is None else max(old.ts, event.ts))
        return made


class InWindows(Node):
    def __init__(self, step: Step, windows: Windows) -> None:
        super().__init__()
        self.step = step
        functions = functions_of(step)
        kind: Any = windows.kind
        self.windowing = Windowing(
            kind, windows.size, functions, windows.grace, windows.advance, windows.close
        )

    def take(self, *events: Events) -> list[Event]:
        made: list[Event] = []
        for event in (event for parent in events for event in parent):
            assert not isinstance(event, Change)
            group = f.letter(event.value) if self.step.by else event.key
            for key, start, end, total, ts in self.windowing.process(group, event.value, event.ts):
                is_list = self.step.fn == "agg" and total is not None
                shown = aggregated(self.step.columns, total) if is_list else total
                made += self.put(Windowed(key, start, end), shown, ts)
        return made


class Groups(Node):
    """The rows of a table by group: what is there now, aggregated; of versions, the newest ones (semantics 2.2.6)."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.members: dict[Any, tuple[Any, Any]] = {}

    def take(self, *events: Events) -> list[Event]:
        made: list[Event] = []
        for change in events[0]:
            assert isinstance(change, Change)
            if not change.latest:
                continue
            before = self.members.pop(change.key, (None, None))[0]
            group = None if change.new is None else f.letter(change.new)
            refused = self.step.fails and f.number(change.new) % 4 == 0
            if group is not None and not refused:
                self.members[change.key] = group, change.new
            for one in dict.fromkeys((before, group)):
                if one is not None:
                    values = [value for found, value in self.members.values() if found == one]
                    there = self.rows.get(one)
                    ts = change.ts if there is None else max(there.ts, change.ts)
                    made += self.put(one, self.total(values) if values else None, ts)
        return made

    def total(self, values: Sequence[Any]) -> Any:
        n = sum(map(f.number, values))
        of: dict[str, Callable[[], Any]] = {
            "count": lambda: len(values),
            "agg": lambda: aggregated(self.step.columns, values),
            "aggregate": lambda: f.row(n, None, float(len(values))),
            "reduce": lambda: n if self.step.by == "s" else f.row(n, f.letter(values[0]), float(len(values))),
        }
        return of[self.step.fn]()
