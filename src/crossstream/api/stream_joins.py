"""The checks of the joins of a stream, and of a table with a global table, and the nodes they become."""

from __future__ import annotations

from dataclasses import replace

from crossstream.api.checks import REQUIRED, check_option, function_of
from crossstream.api.draft import OPERATORS, Handle, check_same_builder, child, given_name, table_result
from crossstream.api.global_table import GlobalKTable
from crossstream.api.options import Joined, JoinWindows, Materialized, Named, StreamJoined
from crossstream.api.serde_rules import agreed, needed_key
from crossstream.durations import to_milliseconds
from crossstream.errors import TopologyError
from crossstream.graph.nodes import (
    ForeignKeyJoin,
    JoinKind,
    Node,
    StoreSpec,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from crossstream.graph.validate import check_partitions, history_of
from crossstream.location import here
from crossstream.serdes import Serde
from crossstream.serdes.serde import alike, told_apart
from crossstream.typing import ForeignKeyExtractor, KeySelector, ValueJoiner


def stream_stream_join(
    kind: JoinKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner = REQUIRED,
    windows: JoinWindows | None = None,
    stream_joined: StreamJoined | None = None,
) -> Node:
    """A new `StreamStreamJoin` below both streams.

    Raises `TopologyError`: CS-110 no windows, CS-134 keys of different serdes.
    """
    operator = OPERATORS[kind]
    given = check_option(operator, "windows", windows, JoinWindows)
    if given is None:
        raise TopologyError(
            f"{operator} with a stream needs to know how far apart in time partners may be",
            code="CS-110",
            where=here(operator),
            next='pass windows, such as JoinWindows.of("10 seconds"); or join a table: stream.to_table()',
        )
    before, after, grace = given.milliseconds()
    option = check_option(operator, "stream_joined", stream_joined, StreamJoined) or StreamJoined()
    mine, theirs, nodes = left._node, other._node, left._draft.nodes
    function = function_of(operator, "joiner", joiner, {"left": mine, "right": theirs})
    path = f"{operator}({theirs.name})"
    check_partitions(nodes, f"{mine.name}.{path}", (mine.name, theirs.name))
    key = _key(operator, mine, theirs, option)
    if mine is theirs:
        value = agreed(operator, "the values of a stream", mine.value, option.value, "value")
        value = agreed(operator, "the values of a stream", value, option.other_value, "other_value")
        option = replace(option, value=value, other_value=value)
    return child(
        left._draft,
        StreamStreamJoin,
        path,
        mine,
        option.name,
        parents=(mine.name, theirs.name),
        key=key,
        value=None,
        value_type=function.returns,
        kind=kind,
        joiner=function,
        before=before,
        after=after,
        grace=grace,
        eager=given.eager,
        store=_store(operator, key, mine.value, option.value, option.store, "value"),
        other_store=_store(
            operator, key, theirs.value, option.other_value, option.other_store, "other_value"
        ),
    )


def _key(operator: str, left: Node, right: Node, option: StreamJoined) -> Serde:
    """The key serde of both streams; one that is known serves both."""
    given = option.key or (right.key if left.key is None else None)
    key = needed_key(operator, left.key, given, "StreamJoined(key=…)")
    if right.key is not None and not alike(right.key, key):
        mine, theirs = told_apart(key, right.key)
        raise TopologyError(
            f"no records ever meet: {left.name} has {mine} keys, {right.name} has {theirs} keys",
            code="CS-134",
            where=here(operator),
            next="give both the same key serde; map or select_key turns one kind of key into the other",
        )
    return key


def _store(
    operator: str, key: Serde, known: Serde | None, given: Serde | None, name: str | None, setting: str
) -> StoreSpec:
    value = agreed(operator, "the values of a stream", known, given, setting)
    return StoreSpec(name, key, value)


def stream_table_join(
    kind: JoinKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner = REQUIRED,
    joined: Joined | None = None,
) -> Node:
    """A new `StreamTableJoin` below the stream and the table.

    Raises `TopologyError`: CS-136 outer join, CS-136 grace over a table that keeps no versions, or not
    for so long, CS-134 keys of different serdes.
    """
    operator = OPERATORS[kind]
    if kind == "outer":
        raise TopologyError(
            "there is no outer join of a stream with a table: changes of the table trigger nothing",
            code="CS-136",
            where=here(operator),
            next="use left_join(…), which keeps the records without a row; or make the stream a table: to_table()",
        )
    option = check_option(operator, "joined", joined, Joined) or Joined()
    stream, table, nodes = left._node, other._node, left._draft.nodes
    function = function_of(operator, "joiner", joiner, {"left": stream, "right": table})
    given = option.key or (table.key if stream.key is None else None)
    key = needed_key(operator, stream.key, given, "Joined(key=…)")
    _check_keys(operator, stream, key, table)
    agreed(operator, "the rows of its table", table.value, option.other_value, "other_value")
    path = f"{operator}({table.name})"
    check_partitions(nodes, f"{stream.name}.{path}", (stream.name, table.name))
    return child(
        left._draft,
        StreamTableJoin,
        path,
        stream,
        option.name,
        parents=(stream.name, table.name),
        key=key,
        value=None,
        value_type=function.returns,
        kind=kind,
        joiner=function,
        stream_value=agreed(operator, "the values of its stream", stream.value, option.value, "value"),
        grace=_grace(operator, option, history_of(nodes, table.name), table),
    )


def _check_keys(operator: str, stream: Node, key: Serde, table: Node) -> None:
    if table.key is None or alike(table.key, key):
        return
    mine, theirs = told_apart(key, table.key)
    raise TopologyError(
        f"no record ever finds a row: {stream.name} has {mine} keys, {table.name} has {theirs} keys",
        code="CS-134",
        where=here(operator),
        next="give both the same key serde; map or select_key turns one kind of key into the other",
    )


def _grace(operator: str, option: Joined, history: int | None, table: Node) -> int | None:
    """The grace period in ms, after checking that the table can be asked for so long ago."""
    if option.grace is None:
        return None
    grace = to_milliseconds(option.grace, "grace", error=TopologyError)
    if history is None:
        raise TopologyError(
            f"{table.name} keeps no versions: a record that waited would see the row of the wrong time",
            code="CS-136",
            where=here(operator),
            next="give the table Materialized(history_retention=…) of at least the grace period, or leave grace out",
        )
    if grace > history:
        raise TopologyError(
            f"records would wait {grace} ms, but {table.name} keeps versions for {history} ms only",
            code="CS-136",
            where=here(operator),
            next="shorten grace, or lengthen the history_retention of the table",
        )
    return grace


def stream_global_join(
    kind: JoinKind,
    left: Handle,
    other: GlobalKTable,
    joiner: ValueJoiner = REQUIRED,
    *,
    key_selector: KeySelector = REQUIRED,
    named: Named | None = None,
) -> Node:
    """A new `StreamGlobalJoin` below the stream and the table. Raises CS-136 for an outer join."""
    operator = OPERATORS[kind]
    if kind == "outer":
        raise TopologyError(
            "there is no outer join with a global table: its rows are looked up and trigger nothing",
            code="CS-136",
            where=here(operator),
            next="use left_join(…), which keeps the records without a partner",
        )
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": other._node})
    return child(
        left._draft,
        StreamGlobalJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, other._node.name),
        value=None,
        value_type=function.returns,
        kind=kind,
        key_selector=function_of(operator, "key_selector", key_selector, {"value": left._node}, by_name=True),
        joiner=function,
    )


def table_global_join(
    kind: JoinKind,
    left: Handle,
    other: GlobalKTable,
    joiner: ValueJoiner,
    foreign_key: ForeignKeyExtractor | None,
    key_selector: KeySelector | None,
    table_joined: object,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """A new `ForeignKeyJoin` below the tables: its right parent is a global table. Raises CS-136."""
    operator = OPERATORS[kind]
    check_same_builder(operator, left._draft, other._draft)
    fault = _misused(foreign_key, key_selector, table_joined)
    if fault is not None:
        what, step = fault
        raise TopologyError(what, code="CS-136", where=here(operator), next=step)
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": other._node})
    role, extractor = ("key_selector", key_selector) if foreign_key is None else ("foreign_key", foreign_key)
    return child(
        left._draft,
        ForeignKeyJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, other._node.name),
        kind=kind,
        foreign_key=function_of(operator, role, extractor, {"value": left._node}, by_name=True),
        **table_result(operator, left._node, function, materialized),
    )


def check_not_global(operator: str, other: object) -> None:
    """CS-136: the rows of a global table that nobody names are in no result."""
    if isinstance(other, GlobalKTable):
        raise TopologyError(
            f"there is no {operator} with a global table",
            code="CS-136",
            where=here(operator),
            next="use join(…) or left_join(…); or read its topic as a table",
        )


def _misused(foreign_key: object, key_selector: object, table_joined: object) -> tuple[str, str] | None:
    """What is wrong with the way a table is to be joined with a global one, and the next step; None: nothing."""
    if table_joined is not None:
        step = 'drop table_joined; a name is given by named=Named("…")'
        return "a join with a global table has no partitioners: the table is whole everywhere", step
    if foreign_key is None and key_selector is None:
        step = "pass foreign_key=lambda left: …; by its own key: foreign_key=cs.keyed(lambda key, left: key)"
        return "a table looks its row in a global table up by a foreign key, and none is given", step
    if foreign_key is not None and key_selector is not None:
        return "foreign_key and key_selector are two names for one thing", "pass one of them"
    return None
