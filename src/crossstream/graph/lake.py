"""A table of a lake as a source: which table, and what is read of it. Plain data, which goes to the tasks.

To the engine it is a topic (decision 0040): a commit of the table is an offset. The range ``[0, V + 1)`` is the table
as version V has it, any other range ``[a, b)`` the commits a to b - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pyarrow as pa

from crossstream.storage.noted import NOT_NOTED

SHARES = 8
"""The partitions of the topic that a lake table is. They are always read up to the same commit."""


LakeFormat: TypeAlias = Literal["delta", "iceberg"]


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A Delta or Iceberg table, read by its versions.

    ``table``: a path or URI, or an identifier in a catalog. ``options``: of the storage, or the properties of the
    catalog, which may hold secrets. ``schema``: of the columns that are read, those of the key (``keys``) and of the
    value (``columns``), with the types that their serdes were made for, as version ``described`` had them. ``version``:
    the snapshot to begin with; None: the newest one at the first start. ``appends``: the rows are the records of a
    stream, ``timestamp`` the column of their times. ``skip_changes``: commits that delete or rewrite rows are passed
    over.
    """

    form: LakeFormat
    table: str
    schema: pa.Schema
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    described: int = field(default=-1, metadata=NOT_NOTED)
    version: int | None = field(default=None, metadata=NOT_NOTED)
    appends: bool = False
    timestamp: str | None = None
    skip_changes: bool = False

    @property
    def topic(self) -> str:
        """Its name as a topic, which no topic of Kafka can have."""
        return f"{self.form}:{self.table}"

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read: of the key, of the value, and of the times."""
        times = () if self.timestamp is None else (self.timestamp,)
        return tuple(dict.fromkeys((*self.keys, *self.columns, *times)))
