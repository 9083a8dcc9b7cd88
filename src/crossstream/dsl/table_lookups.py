"""The checks of the join of a stream with a table, and the node it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.dsl.checks import REQUIRED, check_option, function_of
from crossstream.dsl.handle import OPERATORS, child
from crossstream.dsl.options import Joined
from crossstream.dsl.serde_rules import agreed, needed_key
from crossstream.durations import to_milliseconds
from crossstream.errors import TopologyError
from crossstream.serdes import Serde
from crossstream.serdes.serde import alike, told_apart
from crossstream.topology.graph import JoinKind, Node, StreamTableJoin
from crossstream.topology.location import here
from crossstream.topology.validate import check_partitions, history_of
from crossstream.typing import ValueJoiner

if TYPE_CHECKING:
    from crossstream.dsl.kstream import KStream
    from crossstream.dsl.ktable import KTable


def stream_table_join(
    kind: JoinKind,
    left: KStream,
    other: KTable,
    joiner: ValueJoiner = REQUIRED,
    joined: Joined | None = None,
) -> Node:
    """A new `StreamTableJoin` below the stream and the table.

    Raises `TopologyError`: CS-160 outer join, CS-161 and CS-162 grace over a table that keeps no versions, or not
    for so long, CS-163 keys of different serdes.
    """
    operator = OPERATORS[kind]
    if kind == "outer":
        raise TopologyError(
            "there is no outer join of a stream with a table: changes of the table trigger nothing",
            code="CS-160",
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
        code="CS-163",
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
            code="CS-161",
            where=here(operator),
            next="give the table Materialized(history_retention=…) of at least the grace period, or leave grace out",
        )
    if grace > history:
        raise TopologyError(
            f"records would wait {grace} ms, but {table.name} keeps versions for {history} ms only",
            code="CS-162",
            where=here(operator),
            next="shorten grace, or lengthen the history_retention of the table",
        )
    return grace
