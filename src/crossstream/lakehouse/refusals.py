"""Why a table is not written: each error of `tables`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.nodes import TableSink


def unwritable(node: TableSink, error: Exception) -> CrossStreamError:
    """What a library raised."""
    what = f"the {node.form.capitalize()} table cannot be written: {type_and_text(error)}"
    step = "check the table and the rights on it, then start again: what the table has is not written twice"
    return refuse("CS-665", what, step, **node.where, table=node.table)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def other_columns(node: TableSink, differ: Sequence[str], *, only_new: bool) -> CrossStreamError:
    """The table has columns of other types, or lacks some."""
    what = f"the table has other columns: {'; '.join(differ)}"
    step = (
        'pass schema_mode="merge", which adds columns'
        if only_new
        else "write another table, let its columns be null, or change the types before: map_values(…)"
    )
    return refuse("CS-657", what, step, **node.where, table=node.table)


def other_key(node: TableSink, keys: Sequence[str], there: Sequence[str]) -> CrossStreamError:
    """The table is written by other columns."""
    what = f"the table has another key: {_listed(there)}, and not {_listed(keys)}"
    step = "write another table, or name the columns of its key: key=…"
    return refuse("CS-657", what, step, **node.where, table=node.table)


def demanding(node: TableSink, demands: Sequence[str]) -> CrossStreamError:
    """The table asks for what no sink sees to."""
    what = f"the table demands what crossstream does not see to: {'; '.join(demands)}"
    step = (
        "write another table, or take this from the table, then start again; "
        "leave out records before they are written: filter(…)"
    )
    return refuse("CS-657", what, step, **node.where, table=node.table)


def unnamed_partitions(node: TableSink, names: Sequence[str]) -> CrossStreamError:
    """The table has partitions that do not hold all values."""
    what = f"the table has partitions by {_listed(names)}, which do not hold every text or number"
    step = f"name them, so that records which do not fit are found: partition_by={tuple(names)!r}"
    return refuse("CS-657", what, step, **node.where, table=node.table)


def ahead(node: TableSink, found: int, newest: int) -> CrossStreamError:
    """The table has later batches than the state."""
    return refuse(
        "CS-744",
        f"the table has batch {found} of this state, whose last batch is {newest}: the state is an older copy",
        **node.where,
        table=node.table,
    )


def behind(node: TableSink, wanted: int) -> CrossStreamError:
    """The table lacks a batch that was written."""
    return refuse(
        "CS-745",
        f"the table lacks batch {wanted} of this state, which was written: "
        "it is missing, it was replaced, or it is an older version",
        **node.where,
        table=node.table,
    )


def no_sink(name: str, batch: int) -> CrossStreamError:
    """A batch was being written to a sink that is gone."""
    what = f"batch {batch} was being written to the table of {name!r}, and the topology has no such sink"
    return refuse("CS-746", what, operator=name)
