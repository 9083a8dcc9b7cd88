"""The joins of a stream: the table on the other side decides which one. Checks, and the nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from crossstream.api.checks import (
    REQUIRED,
    agreed,
    check_headers,
    check_option,
    check_same_keys,
    needed_key,
    reference_of,
    settled,
)
from crossstream.api.draft import OPERATORS, Handle, check_same_builder, child, given_name
from crossstream.api.merging import OnMerge, joiner_of
from crossstream.api.options import Joined, JoinWindows, Named, StreamJoined, settings_of
from crossstream.api.types import check_key_type
from crossstream.columns.changes import Headers
from crossstream.columns.functions import Function, keyed
from crossstream.durations import Duration, to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.names import check_partitions, history_of
from crossstream.graph.nodes import (
    Filter,
    JoinKind,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Shape,
    StoreSpec,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from crossstream.serdes.contract import EngineSerde
from crossstream.signatures import required_arguments
from crossstream.typing import GlobalJoiner, KeySelector, ValueJoiner


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a join with another stream may be given, as it is written: ``join(other, joiner, windows, …)``."""

    joiner: ValueJoiner | None = None
    windows: JoinWindows | None = None
    stream_joined: StreamJoined | None = None
    _: KW_ONLY
    within: Duration | None = None
    before: Duration | None = None
    after: Duration | None = None
    grace: Duration | None = None
    on_merge: OnMerge = "raise"
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What a join with a table may be given, as it is written: ``join(other, joiner, joined, …)``."""

    joiner: ValueJoiner | None = None
    joined: Joined | None = None
    _: KW_ONLY
    grace: Duration | None = None
    on_merge: OnMerge = "raise"
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class GlobalSettings:
    """What a join with a global table may be given, as it is written: ``join(other, joiner, key_selector=…, …)``."""

    joiner: GlobalJoiner | None = None
    _: KW_ONLY
    key_selector: KeySelector = REQUIRED
    named: Named | None = None
    on_merge: OnMerge = "raise"
    headers: Headers | None = None


def stream_stream_join(kind: JoinKind, left: Handle, other: Handle, asked: StreamSettings) -> Node:
    """Adds a `StreamStreamJoin`. Raises CS-110 without windows, CS-134 for keys of different serdes."""
    operator = OPERATORS[kind]
    windows = _windows(operator, asked)
    before, after, grace = windows.milliseconds()
    option = check_option(operator, "stream_joined", asked.stream_joined, StreamJoined) or StreamJoined()
    mine, theirs, nodes = left._node, other._node, left._draft.nodes
    function = joiner_of(operator, kind, asked.joiner, asked.on_merge, {"left": mine, "right": theirs})
    path = f"{operator}({theirs.name})"
    check_partitions(nodes, f"{mine.name}.{path}", (mine.name, theirs.name))
    key = _shared_key(operator, mine, theirs, option.key, "StreamJoined(key=…)")
    kept = [
        agreed(operator, "the values of a stream", node.value, value, setting)
        for node, value, setting in (
            (mine, option.value, "value"),
            (theirs, option.other_value, "other_value"),
        )
    ]
    if mine is theirs:
        kept = [agreed(operator, "the values of a stream", kept[0], kept[1], "other_value")] * 2
    return child(
        left._draft,
        StreamStreamJoin,
        path,
        mine,
        option.name,
        theirs,
        key=key,
        value=None,
        value_type=function.returns,
        kind=kind,
        joiner=function,
        before=before,
        after=after,
        grace=grace,
        eager=windows.eager,
        headers=check_headers(operator, asked.headers),
        store=StoreSpec(option.store, key, kept[0]),
        other_store=StoreSpec(option.other_store, key, kept[1]),
    )


def _windows(operator: str, asked: StreamSettings) -> JoinWindows:
    """The windows of a join, given as an object or by keyword.

    Raises CS-110 for both, for neither, and for bounds that clash.
    """
    windows = check_option(operator, "windows", asked.windows, JoinWindows)
    bounds = {name: getattr(asked, name) for name in ("within", "before", "after", "grace")}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    sides = {"before", "after"} & given.keys()
    twice = "windows" if windows is not None and given else "within" if "within" in given and sides else None
    if twice is not None:
        others = ", ".join(f"{name}=…" for name in given if name != twice)
        what = f"{operator} gets its windows twice: {twice}=… and {others}"
        step = 'keep one: within="10 minutes" to both sides, or before=… and after=…'
        raise refuse("CS-110", what, step, **caller_location(operator))
    if windows is not None:
        return windows
    grace = given.pop("grace", 0)
    if not given:
        what = f"{operator} with a stream needs windows: how far apart in time partners may be"
        step = (
            'write within="10 seconds", or JoinWindows.of("10 seconds"); or join a table: stream.to_table()'
        )
        raise refuse("CS-110", what, step, **caller_location(operator))
    if "within" in given:
        within = to_milliseconds(given["within"], "within", code="CS-110")
        return JoinWindows.of(f"{within} ms", grace=grace)
    return JoinWindows(before=given.get("before", 0), after=given.get("after", 0), grace=grace)


def _shared_key(
    operator: str, left: Node, right: Node, given: EngineSerde | None, setting: str
) -> EngineSerde:
    """The key serde of both inputs; one that is known serves both."""
    key = needed_key(operator, left.key, given or (right.key if left.key is None else None), setting)
    if left.key is None and left.key_type is not None and left.key_type.dtype is not None:
        check_key_type(operator, f"key of {left.name}", left.key_type.dtype, key, right)
    check_same_keys(operator, left, key, right, "map or select_key turns one kind of key into the other")
    return key


def stream_table_join(kind: JoinKind, left: Handle, other: Handle, asked: TableSettings) -> Node:
    """Adds a `StreamTableJoin`.

    Raises CS-136 for an outer join, and for a grace period longer than the table keeps versions; CS-134 for keys of
    different serdes.
    """
    operator = OPERATORS[kind]
    _refuse_outer(kind, "table", "; or make the stream a table: to_table()")
    option = check_option(operator, "joined", asked.joined, Joined)
    option = settings_of(operator, "joined", option, Joined, grace=asked.grace) or Joined()
    stream, table, nodes = left._node, other._node, left._draft.nodes
    by = _selector(nodes, stream)
    sides = {"left": stream, "right": table}
    function = joiner_of(operator, kind, asked.joiner, asked.on_merge, sides, key=by)
    key = _shared_key(operator, stream, table, option.key, "Joined(key=…)")
    agreed(operator, "the rows of its table", table.value, option.other_value, "other_value")
    path = f"{operator}({table.name})"
    check_partitions(nodes, f"{stream.name}.{path}", (stream.name, table.name))
    return child(
        left._draft,
        StreamTableJoin,
        path,
        stream,
        option.name,
        table,
        key=key,
        value=None,
        value_type=function.returns,
        kind=kind,
        joiner=function,
        stream_value=agreed(operator, "the values of its stream", stream.value, option.value, "value"),
        grace=_grace(operator, option, history_of(nodes, table.name), table),
        headers=check_headers(operator, asked.headers),
    )


def _selector(nodes: Mapping[str, Node], node: Node) -> Function | None:
    """What has taken the keys of a stream from its values; None if they are those of its topic, or of other values."""
    while isinstance(node, Filter | Peek | Repartition):
        node = nodes[node.parents[0]]
    return node.mapper if isinstance(node, SelectKey) else None


def _grace(operator: str, option: Joined, history: int | None, table: Node) -> int | None:
    """The grace period in ms. Refuses (CS-136) one that is longer than the table keeps versions."""
    if option.grace is None:
        return None
    grace = settled(option.grace)
    if history is None:
        what = f"{table.name} keeps no versions: a record that waits would see a later row"
        step = "give the table Materialized(history_retention=…) of at least the grace period, or leave grace out"
        raise refuse("CS-136", what, step, **caller_location(operator))
    if grace > history:
        what = f"records would wait {grace} ms, but {table.name} keeps versions for {history} ms only"
        step = "shorten grace, or lengthen the history_retention of the table"
        raise refuse("CS-136", what, step, **caller_location(operator))
    return grace


def stream_global_join(kind: JoinKind, left: Handle, other: Handle, asked: GlobalSettings) -> Node:
    """Adds a `StreamGlobalJoin`. Raises CS-136 for an outer join.

    A joiner that requires four arguments gets both keys: (key, other_key, left, right) (KIP-1340).
    """
    operator = OPERATORS[kind]
    _refuse_outer(kind, "global table")
    sides, joiner = {"left": left._node, "right": other._node}, asked.joiner
    called = joiner.function if isinstance(joiner, keyed) else joiner
    both_keys = callable(called) and required_arguments(called) == 4
    values = ("other_key", *sides) if both_keys else None
    selector = reference_of(operator, "key_selector", asked.key_selector, *sides.values())
    function = joiner_of(operator, kind, joiner, asked.on_merge, sides, key=selector, values=values)
    return child(
        left._draft,
        StreamGlobalJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, asked.named),
        other._node,
        value=None,
        value_type=function.returns,
        kind=kind,
        key_selector=selector,
        joiner=function,
        both_keys=both_keys,
        headers=check_headers(operator, asked.headers),
    )


def _refuse_outer(kind: JoinKind, noun: str, also: str = "") -> None:
    if kind == "outer":
        what = f"a stream has no outer join with a {noun}: changes of the table trigger no result"
        step = f"use left_join(…), which keeps the records without a row{also}"
        raise refuse("CS-136", what, step, **caller_location(OPERATORS[kind]))


class _Join(NamedTuple):
    """A join of a stream: with a table of the class ``noun``, of ``settings``, which ``add`` adds as a node."""

    noun: str
    settings: type[StreamSettings | TableSettings | GlobalSettings]
    add: Callable[[JoinKind, Handle, Handle, Any], Node]

    def written(self, operator: str) -> str:
        return f"{operator}(other, {written_parameters(self.settings)})"


_JOINS: Mapping[Shape, _Join] = MappingProxyType(
    {
        "stream": _Join("KStream", StreamSettings, stream_stream_join),
        "table": _Join("KTable", TableSettings, stream_table_join),
        "global": _Join("GlobalKTable", GlobalSettings, stream_global_join),
    }
)
"""The join of a stream, by the shape of the other side."""


def stream_join(kind: JoinKind, left: Handle, other: object, settings: Mapping[str, Any]) -> Node:
    """Adds a join below a stream. ``settings``: by name, None where there is none; a table's ``joined`` may be called
    ``windows``, the name of the third argument.

    Raises CS-135 for an other side that a stream cannot join, CS-136 for options of another kind of join.
    """
    operator = OPERATORS[kind]
    if not isinstance(other, Handle):
        raise refuse(
            "CS-135",
            f"a stream cannot be joined with a {type(other).__name__}",
            f"pass a {' or a '.join(join.noun for join in _JOINS.values())} of the same builder",
            **caller_location(operator),
        )
    check_same_builder(operator, left._draft, other._draft)
    join = _JOINS[other._node.shape]
    given = {name: value for name, value in settings.items() if value is not None}
    third = given.pop("windows", None)
    if third is not None:
        given["joined" if join.noun == "KTable" and "joined" not in given else "windows"] = third
    known = inspect.signature(join.settings).parameters
    unfit = [name for name in given if name not in known]
    if unfit:
        what, step = f"it has no {unfit[0]}", f"write {join.written(operator)}"
        raise wrong_call(f"{operator} with a {join.noun}", operator, what, step)
    return join.add(kind, left, other, join.settings(**given))


def stream_join_error(
    join: Callable[..., Any], given: tuple[Any, ...], settings: Mapping[str, Any], fault: str
) -> CrossStreamError:
    """CS-136: wrong arguments for the method ``join`` of a stream; the other side is called ``other``."""
    operator = join.__name__
    fitting = [_JOINS["stream"]] if operator == "outer_join" else _JOINS.values()
    ways = [f"{one.written(operator)} with a {one.noun}" for one in fitting]
    also = "; a table takes left_join" if operator == "outer_join" else ""
    return wrong_call(f"{operator} of a KStream", operator, fault, f"write {', or '.join(ways)}{also}")


def wrong_call(what: str, operator: str, fault: str, step: str) -> CrossStreamError:
    return refuse("CS-136", f"wrong arguments for {what}: {fault}", step, **caller_location(operator))


def written_parameters(call: Callable[..., Any]) -> str:
    """The parameters as they are written, without ``self``; optional ones in brackets."""
    written = []
    for one in inspect.signature(call).parameters.values():
        text = f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name
        written.append(text if one.default is one.empty or one.default is REQUIRED else f"[{text}]")
    return ", ".join(text for text in written if text != "self")
