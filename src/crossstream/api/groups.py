"""What is grouped, its windows, and the aggregation of it as a node. The methods of users are in `grouped`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from crossstream.api.checks import check_choice, check_option, check_signature, function_of, needed_key
from crossstream.api.draft import Draft, Handle, child, given_name, made_values
from crossstream.api.options import Grouped, Materialized, Named, settings_of
from crossstream.api.types import AsSerde, declared_key
from crossstream.api.windows import windows_of
from crossstream.columns.functions import Function
from crossstream.columns.windows import WindowSpec
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Aggregate, Node
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.primitives import String
from crossstream.serdes.windowed import WindowedSerde

T = TypeVar("T")
"""The class of the result: a `KTable`, which imports this module."""


@dataclass(frozen=True, slots=True)
class Groups(Generic[T]):
    """What is grouped: the nodes, the serdes of the groups' keys and of the values, and windows if there are any.

    ``table``: makes the result of a node.
    """

    table: Callable[[Draft, Node], T]
    nodes: tuple[Node, ...]
    key: EngineSerde
    values: tuple[EngineSerde | None, ...]
    windows: WindowSpec | None = None
    emit_final: bool = False

    @property
    def are_sessions(self) -> bool:
        return self.windows is not None and self.windows.merge

    def windowed(self, windows: Any, emit: Any) -> Groups[T]:
        """The groups in windows. Raises CS-101 and CS-110 for settings of `GroupedKStream.windowed_by`."""
        check_choice("windowed_by", "emit", emit, ("update", "close"))
        spec = windows_of(windows)
        if emit == "close" and not spec.end:
            what = "a window without an end never closes, so nothing would come out"
            step = 'leave emit="close" out, or choose windows that end'
            raise refuse("CS-110", what, step, **caller_location("windowed_by"))
        return replace(self, windows=spec, emit_final=emit == "close")


class Grouping(Handle, Generic[T]):
    """What is grouped, and the node that aggregates it. Its methods return the table of that node."""

    __slots__ = ("_groups",)

    def __init__(self, draft: Draft, groups: Groups[T]) -> None:
        super().__init__(draft, groups.nodes[0])
        self._groups = groups

    def _table(
        self,
        operator: Literal["count", "reduce", "aggregate", "agg"],
        named: Named | None,
        materialized: Materialized | None,
        **attributes: Any,
    ) -> T:
        name, groups = given_name(operator, named), self._groups
        option = check_option(operator, "materialized", materialized, Materialized)
        asked = option or Materialized()
        group_key = needed_key(operator, groups.key, asked.key, "Grouped(key=…)")
        value = attributes.pop("value")
        key = self._result_key(group_key)
        made = child(
            self._draft,
            Aggregate,
            operator,
            self._node,
            name,
            *groups.nodes[1:],
            shape="table",
            key=key,
            key_type=None,
            value=value,
            operator=operator,
            group_key=group_key,
            group_values=groups.values,
            windows=groups.windows,
            emit_final=groups.emit_final,
            store=None if option is None else asked.spec(key, value),
            **attributes,
        )
        return groups.table(self._draft, made)

    def _result_key(self, key: EngineSerde) -> EngineSerde:
        windows = self._groups.windows
        return key if windows is None else WindowedSerde(key, windows.length)

    def _function(self, operator: str, role: str, given: Any, arguments: tuple[str, str]) -> Function:
        return function_of(operator, role, given, {"value": self._node}, values=arguments, expression=False)

    def _aggregate(
        self,
        initializer: Callable[[], Any],
        adders: tuple[Function, ...],
        merger: Any,
        named: Named | None,
        materialized: Materialized | None,
    ) -> T:
        check_signature("aggregate", "initializer", initializer, (), optional=False)
        if self._groups.are_sessions and merger is None:
            what = "aggregate over sessions needs a merger: a record may join two sessions to one"
            step = "pass merger=lambda left, right: …, which makes one aggregate of two"
            raise refuse("CS-104", what, step, **caller_location("aggregate"))
        if merger is not None and not self._groups.are_sessions:
            what = "only sessions are merged, and these are not sessions"
            step = "leave merger out, or use windowed_by(SessionWindows(gap=…))"
            raise refuse("CS-104", what, step, **caller_location("aggregate"))
        merging = None if merger is None else self._function("aggregate", "merger", merger, ("left", "right"))
        asked = check_option("aggregate", "materialized", materialized, Materialized) or Materialized()
        made = made_values("adder", adders[0], asked, self._node)
        adders = (made.pop("adder"), *adders[1:])
        return self._table(
            "aggregate", named, materialized, initializer=initializer, adders=adders, merger=merging, **made
        )


def grouped_of(operator: str, grouped: Grouped | None, key: AsSerde | None, value: AsSerde | None) -> Grouped:
    """``grouped``, with the serdes that are given by keyword."""
    option = check_option(operator, "grouped", grouped, Grouped)
    return settings_of(operator, "grouped", option, Grouped, key=key, value=value) or Grouped()


def group_key(operator: str, node: Node, option: Grouped, *, by_field: bool = False) -> EngineSerde:
    """The serde of the groups' keys: of the option, of the stream, or that of a plain type that a function declares.

    ``by_field``: text names the field that is the key; where its type is not declared, keys are text.
    """
    known = option.key or declared_key(node) or (String() if by_field else None)
    return needed_key(operator, node.key, known if node.key is None else option.key, "key=…")
