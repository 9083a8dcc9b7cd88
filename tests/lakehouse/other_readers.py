"""Reads Delta and Iceberg tables without the libraries that write them: the logs as JSON and Avro, files by DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import fastavro

from tests.lakehouse.lake import Lake

Rows = list[dict[str, Any]]

_TYPES = {
    "string": "VARCHAR",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
"""Names of Delta's types that DuckDB has others for."""


def rows_of(lake: Lake, table: str) -> Rows:
    """The rows of the table's newest version."""
    return list((_delta if lake.form == "delta" else _iceberg)(lake, table))


def _delta(lake: Lake, table: str) -> Iterator[dict[str, Any]]:
    """Without checkpoints, which are written of a hundred versions."""
    root = Path(lake.path(table))
    files: dict[str, dict[str, str | None]] = {}
    types: dict[str, str] = {}
    for log in sorted((root / "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                types = {field["name"]: field["type"] for field in fields}
            if "remove" in action:
                del files[action["remove"]["path"]]
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["partitionValues"]
    for path, partition in files.items():
        for row in _file(root / unquote(path)):
            of = {name: _value(text, types[name]) for name, text in partition.items()}
            yield {name: {**row, **of}.get(name) for name in types}


def _iceberg(lake: Lake, table: str) -> Iterator[dict[str, Any]]:
    home = Path(lake.path("")) / "shop" / table
    versions = (home / "metadata").glob("*.metadata.json")
    newest = max(versions, key=lambda path: int(re.findall(r"^\d+", path.name)[0]))
    found = json.loads(newest.read_text())
    for snapshot in found.get("snapshots", ()):
        if snapshot["snapshot-id"] != found.get("current-snapshot-id"):
            continue
        for manifest in _avro(snapshot["manifest-list"]):
            for entry in _avro(manifest["manifest_path"]):
                if entry["status"] != 2:  # deleted
                    yield from _file(_local(entry["data_file"]["file_path"]))


def _avro(uri: str) -> list[Any]:
    with _local(uri).open("rb") as file:
        return list(fastavro.reader(file))


def _local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def _file(path: Path) -> Rows:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # A folder such as p=1 is not read as a column: the log says what it is.
        found = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning = false)", [str(path)])
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _value(text: str | None, kind: str) -> Any:
    """A partition's value, of its text in the log: the empty text is null there."""
    if not text:
        return None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        [value] = connection.execute(f"SELECT CAST(? AS {_TYPES.get(kind, kind)})", [text]).fetchone() or ()
        return value
