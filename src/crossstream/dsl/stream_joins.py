"""The checks of the join of two streams, and the node it becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.dsl.checks import REQUIRED, check_option, function_of
from crossstream.dsl.handle import OPERATORS, child
from crossstream.dsl.options import StreamJoined
from crossstream.dsl.serde_rules import agreed, needed_key
from crossstream.dsl.windows import JoinWindows
from crossstream.errors import TopologyError
from crossstream.serdes import Serde
from crossstream.serdes.serde import alike, told_apart
from crossstream.topology.graph import JoinKind, Node, StoreSpec, StreamStreamJoin
from crossstream.topology.location import here
from crossstream.topology.validate import check_partitions
from crossstream.typing import ValueJoiner

if TYPE_CHECKING:
    from crossstream.dsl.kstream import KStream


def stream_stream_join(
    kind: JoinKind,
    left: KStream,
    other: KStream,
    joiner: ValueJoiner = REQUIRED,
    windows: JoinWindows | None = None,
    stream_joined: StreamJoined | None = None,
) -> Node:
    """A new `StreamStreamJoin` below both streams.

    Raises `TopologyError`: CS-171 no windows, CS-172 keys of different serdes.
    """
    operator = OPERATORS[kind]
    given = check_option(operator, "windows", windows, JoinWindows)
    if given is None:
        raise TopologyError(
            f"{operator} with a stream needs to know how far apart in time partners may be",
            code="CS-171",
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
            code="CS-172",
            where=here(operator),
            next="give both the same key serde; map or select_key turns one kind of key into the other",
        )
    return key


def _store(
    operator: str, key: Serde, known: Serde | None, given: Serde | None, name: str | None, setting: str
) -> StoreSpec:
    value = agreed(operator, "the values of a stream", known, given, setting)
    return StoreSpec(name, key, value)
