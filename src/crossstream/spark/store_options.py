"""The options of the format ``crossstream``: what a user writes, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.query.table import Column, StoreTable

_KNOWN = (
    "store",
    "batch",
    "columns",
    "versions",
    "changes",
    "startingBatch",
    "maxBatchesPerTrigger",
    "preimages",
)
_OF_OTHERS = {
    "versionasof": 'write .option("batch", 7): the store after batch 7',
    "startingversion": 'write .option("startingBatch", 7): the changes from batch 7 on',
    "readchangefeed": "leave it out: a store that is read by spark.readStream gives changes",
}
"""What takes the place of options that other formats have."""
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Options:
    """``batch``: None: the newest. ``columns``: None: all. ``starting``: a batch, or "latest"; ``most``: batches.

    ``changes``: a stream is read, whose rows say what has become of them: Spark does not say it.
    """

    state_dir: str
    store: str
    batch: int | None = None
    columns: tuple[str, ...] | None = None
    versions: bool = False
    starting: int | str | None = None
    most: int | None = None
    preimages: bool = False
    changes: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Raises `ConfigError` CS-201 for an option that is missing, unknown or wrong."""
        found = {name.lower(): value for name, value in given.items()}
        known = {name.lower() for name in _KNOWN}
        unknown = sorted(found.keys() - known - {"path"})
        if unknown:
            step = _OF_OTHERS.get(unknown[0], f"the options are: {', '.join(_KNOWN)}")
            raise _wrong(f"there is no option {unknown[0]!r}", step)
        if not found.get("path"):
            raise _wrong("the state folder is not named", 'name it: .load("state/shop")')
        if not found.get("store"):
            raise _wrong("the store is not named", 'name it: .option("store", "offers")')
        columns = found.get("columns")
        starting = found.get("startingbatch")
        return cls(
            found["path"],
            found["store"],
            _number(found, "batch", 0),
            None if columns is None else _names(columns),
            _flag(found, "versions"),
            starting if starting == LATEST else _number(found, "startingBatch", 0),
            _number(found, "maxBatchesPerTrigger", 1),
            _flag(found, "preimages"),
            _flag(found, "changes"),
        )

    def table(self) -> StoreTable:
        """The store as a table. Raises as `open_store`."""
        return StoreTable.open(self.state_dir, self.store, versions=self.versions)

    def chosen(self, table: StoreTable) -> tuple[Column, ...]:
        """The columns that are asked for. Raises `StateError` CS-711 for one that the store does not have."""
        return table.columns if self.columns is None else tuple(map(table.column, self.columns))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise _wrong(f"columns={text!r} does not name columns, each once", 'write "id,price"')
    return names


def _number(found: Mapping[str, str], name: str, least: int) -> int | None:
    text = found.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise _wrong(
            f"{name}={text!r} is not a number from {least} on", f'write .option("{name}", {least + 5})'
        )
    return int(text)


def _flag(found: Mapping[str, str], name: str) -> bool:
    text = found.get(name, "false").lower()
    if text not in ("true", "false"):
        raise _wrong(f"{name}={text!r} is neither true nor false", f'write .option("{name}", True)')
    return text == "true"


def _wrong(what: str, step: str) -> CrossStreamError:
    return refuse("CS-201", what, step, format="crossstream")
