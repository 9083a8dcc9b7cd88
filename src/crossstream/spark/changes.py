"""Changes of a table as rows of a DataFrame: in the order of its versions, and of one version one for each key.

    law    after every version the table holds what the versions up to it hold, however their rows are spread

Spark gives the rows of a version in any order, and over several partitions. So they move to a partition of their key
and are sorted there, before a task takes them: deletes before rows, so that a key which is deleted and inserted in one
version is there. A row as it was before an update counts as a delete of its key, unless the version writes the key:
that is what the update of a key needs. A version that comes in several batches may only add rows in the later ones:
each batch knows the newest version of those before it (decision 0041). Page: docs/dataframes.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crossstream.error_codes import refuse
from crossstream.graph.nodes import Node
from crossstream.task.batch import Report

VERSION, CHANGE = "version", "change"
COLUMNS = f"{VERSION} bigint, {CHANGE} tinyint"
"""What wire rows of changes have beside the others: the commit, and what the row does."""

_PLACE = "place"
ORDER = ("source", VERSION, _PLACE, "key", CHANGE)
"""The order of rows in a partition. Rows that are no changes keep theirs, by their place."""

PREIMAGE, DELETE, UPSERT = 0, 1, 2
"""What a row does, in the order in which the rows of a key count in one version."""

_KINDS = ("update_preimage", "delete", "insert", "update_postimage")
_CODES = np.array([PREIMAGE, DELETE, UPSERT, UPSERT], np.int8)

PASSED = "update-preimage"
"""Why a row is passed over that says how another one of its version was before."""


def codes_of(kinds: pa.Array, operator: str) -> np.ndarray:
    """What each row does, by its ``_change_type``. Raises CS-507 for one that is unknown."""
    found = pc.index_in(kinds.cast(pa.string()), pa.array(_KINDS))
    if found.null_count:
        kind = kinds[int(np.flatnonzero(found.is_null())[0])].as_py()
        what = f"a row of changes has the _change_type {kind!r}"
        step = f"filter such rows out in the DataFrame; what is read is {', '.join(_KINDS)}"
        raise refuse("CS-507", what, step, operator=operator, column="_change_type")
    return np.asarray(_CODES[found.to_numpy()])


def moved(rows: DataFrame) -> DataFrame:
    """The wire rows of a streaming DataFrame of changes, those of a key in one partition."""
    return rows.repartition(rows.sparkSession.sparkContext.defaultParallelism, "key")


def in_order(rows: DataFrame) -> DataFrame:
    """The wire rows of a micro-batch in the order in which they count."""
    if VERSION not in rows.columns:
        return rows
    place = F.when(F.col(VERSION).isNull(), F.monotonically_increasing_id())
    return rows.withColumn(_PLACE, place).sortWithinPartitions(*ORDER).drop(_PLACE)


BEFORE_ALL = np.iinfo(np.int64).min
"""The version before all others."""


@dataclass(slots=True)
class Netting:
    """Takes the changes of one partition in their order, and gives the last one of each key in each version.

    ``newest``: the newest version of which earlier batches took rows. The report gets that of this batch, and counts
    what was passed over.
    """

    node: Node
    report: Report
    newest: int = BEFORE_ALL
    _held: pa.RecordBatch | None = field(default=None, init=False)

    def taken(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that count. The last one is held back: the next batch may continue with its key and version.

        Raises CS-507 for a version with two rows of one key, and for one that came in several batches or too late.
        """
        if not rows.num_rows:
            return rows
        self._check_order(rows)
        if self._held is not None:
            rows = pa.concat_batches([self._held, rows])
        self._held = rows.slice(rows.num_rows - 1)
        followed = _followed(rows)
        codes = _codes(rows)[:-1]
        self._check_once(rows, followed & (codes == UPSERT))
        self.report.count_dropped(self.node.name, {PASSED: int((followed & (codes == PREIMAGE)).sum())})
        return rows.slice(0, rows.num_rows - 1).filter(pa.array(~followed))

    def rest(self) -> pa.RecordBatch | None:
        """The row that was held back."""
        held, self._held = self._held, None
        return held

    def _check_order(self, rows: pa.RecordBatch) -> None:
        """Rows of a version that an earlier batch took rows of may follow, and no deletes: they count before rows."""
        versions, written = _versions(rows), _codes(rows) == UPSERT
        late = (versions < self.newest) | ((versions == self.newest) & ~written)
        if written.any():
            self.report.note_version(self.node.name, int(versions[written].max()))
        if not late.any():
            return
        version = int(versions[late][0])
        what = f"rows of version {version} came after a batch with rows of version {self.newest}"
        step = (
            "let a commit come whole, for instance by a larger maxFilesPerTrigger in spark.readStream, and commits "
            "in the order of _commit_version; then start with an empty state_dir"
        )
        raise refuse("CS-507", what, step, **self.node.where)

    def _check_once(self, rows: pa.RecordBatch, twice: np.ndarray) -> None:
        if not twice.any():
            return
        row = int(np.flatnonzero(twice)[0])
        serde: Any = self.node.key
        key = serde.deserialize(rows.column("key")[row].as_py())
        what = f"version {_versions(rows)[row]} has two rows of the key {key!r}"
        step = "name in key= the columns that together are unique in the table"
        raise refuse("CS-507", what, step, **self.node.where)


def _versions(rows: pa.RecordBatch) -> np.ndarray:
    return np.asarray(rows.column(VERSION))


def _codes(rows: pa.RecordBatch) -> np.ndarray:
    return np.asarray(rows.column(CHANGE))


def _followed(rows: pa.RecordBatch) -> np.ndarray:
    """Row by row but the last, whether another one of its key and version comes next. Null keys are no keys."""
    last = rows.num_rows - 1
    same = (
        pc.equal(rows.column(name).slice(0, last), rows.column(name).slice(1)) for name in ("key", VERSION)
    )
    return np.asarray(pc.and_(*same).fill_null(False))
