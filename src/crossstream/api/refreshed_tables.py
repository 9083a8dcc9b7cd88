"""`global_table_from`: static tables that are read again, as global tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crossstream.api.checks import check_name
from crossstream.api.draft import Draft
from crossstream.api.global_table import GlobalKTable
from crossstream.api.lake_sources import Names
from crossstream.api.options import Materialized, materialized_of
from crossstream.api.refreshed import OPERATOR, refreshed_of
from crossstream.durations import Duration
from crossstream.error_codes import refuse
from crossstream.filetopics.refreshed import topic_of
from crossstream.graph.nodes import Source


class RefreshedTables:
    """The method of a builder that reads a static table again and again."""

    __slots__ = ()
    _draft: Draft

    def global_table_from(
        self,
        frame: Any,
        *,
        key: Names,
        refresh: Duration | None = "5 minutes",
        name: str | None = None,
        columns: Sequence[str] | None = None,
        store: str | None = None,
        materialized: Materialized | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A small static table as a global table: read at each start, and again after each ``refresh``.

        ``frame``: a DataFrame that is no streaming one, or a function () that gives one; a pyarrow Table and a Polars
        DataFrame do, too. A function is called here once, for the columns. ``key``: the column of the key, or several,
        which are a struct; ``columns``: those of the value, by default all others. ``refresh``: None reads it at each
        start only. ``name`` keeps what was read when the code around it changes; ``store`` makes it queryable, and so
        does ``materialized``.

        What differs from the rows before is a change of the table, and no batch sees half of a reading. The rows pass
        through this process, which holds them twice while it compares them: it is for tables of up to about a
        million rows. If a later reading fails, the rows stay, a warning says so, and the next refresh tries again.
        Rows without a key are dropped and counted.

        Raises `TopologyError`: CS-150 for a streaming DataFrame, columns that are not there, and types that no serde
        reads, CS-101 for arguments that name no columns and for a versioned store, CS-102 for a bad name, CS-110 for a
        ``refresh`` that is no duration. A start raises `SourceError` CS-621 if the table cannot be read or has two rows
        of a key, and `ConfigError` CS-201 if the state is on an object store.

        >>> import polars as pl
        >>> from crossstream import StreamsBuilder
        >>> def rates():
        ...     return pl.DataFrame({"code": ["EUR", "USD"], "rate": [1.0, 1.1]})
        >>> StreamsBuilder().global_table_from(rates, key="code", refresh="5 minutes", name="rates")
        <GlobalKTable rates>
        """
        check_name(OPERATOR, "name", name, optional=True)
        given = refreshed_of(frame, key, columns, refresh)
        stored = materialized_of(OPERATOR, materialized, store)
        if stored is not None and stored.history_retention is not None:
            what = (
                "a global table keeps no versions: a record sees the row of the moment when it is processed"
            )
            raise refuse("CS-101", what, "leave history_retention out", **given.where)
        spec = None if stored is None else stored.spec(given.rows.key, given.rows.value)
        named = name or self._draft.paths.name(None, "refreshed")
        node = self._draft.add(
            Source,
            "refreshed",
            named,
            shape="global",
            topics=(topic_of(named),),
            key=given.rows.key,
            value=given.rows.value,
            store=spec,
        )
        self._draft.frames[node.name] = replace(given, where=node.where)
        return GlobalKTable(self._draft, node)
