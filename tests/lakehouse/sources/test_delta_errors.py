"""What is refused of a Delta table as a source: with its code, the version, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.verify import verify_results
from tests.lakehouse.sources.test_delta_tables import orders, rows, run, simple


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


def refused(tmp_path: Path, build: Any, code: str, *texts: str) -> cs.CrossStreamError:
    with pytest.raises(cs.CrossStreamError) as caught:
        run(tmp_path, build)
    assert caught.value.code == code, caught.value
    for text in texts:
        assert text in str(caught.value)
    return caught.value


# -- where it is written


def test_a_table_that_is_not_there(tmp_path: Path, path: str) -> None:
    error = refused(tmp_path, orders(path), "CS-602", "there is no Delta table", path)
    assert error.where["operator"] == "table_from_delta"
    assert "test_delta_tables.py" in str(error.where["line"])


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"key": "idd"}, "CS-150", "write 'id'"),
        ({"key": []}, "CS-101", "key=[] does not name columns"),
        ({"key": None}, "CS-101", "the rows of a table have a key"),
        ({"key": "id", "columns": ["amounts"]}, "CS-150", "write 'amount'"),
        ({"key": "id", "columns": []}, "CS-101", "columns=[] does not name columns"),
        ({"key": "id", "version": 7}, "CS-101", "there is no version 7; the newest one is 0"),
        ({"key": "id", "version": -1}, "CS-101", "version=-1 is not a version"),
        ({"key": "id", "name": "my orders"}, "CS-102", "my orders"),
    ],
)
def test_what_a_call_cannot_ask_for(path: str, settings: dict[str, Any], code: str, text: str) -> None:
    simple(path, [1], [0.5])
    with pytest.raises(cs.CrossStreamError, match=code) as caught:
        cs.StreamsBuilder().table_from_delta(path, **settings)
    assert text in str(caught.value)


@pytest.mark.parametrize("timestamp", ["page", "when", ""])
def test_a_time_is_a_column_of_times(path: str, timestamp: str) -> None:
    write_deltalake(path, pa.table({"page": ["/"], "at": [1]}))
    with pytest.raises(cs.TopologyError, match="timestamp"):
        cs.StreamsBuilder().stream_from_delta(path, timestamp=timestamp)


def test_a_table_is_read_by_one_source(path: str) -> None:
    simple(path, [1], [0.5])
    builder = cs.StreamsBuilder()
    builder.table_from_delta(path, key="id")
    with pytest.raises(cs.TopologyError, match="CS-122"):
        builder.stream_from_delta(path)


# -- versions


def test_files_that_were_vacuumed(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    run(tmp_path, orders(path))
    DeltaTable(path).update(updates={"amount": "9"}, predicate="id = 1")
    DeltaTable(path).update(updates={"amount": "10"}, predicate="id = 1")
    vacuum(path)
    refused(tmp_path, orders(path), "CS-613", "a file of version 1 is gone", "new snapshot")
    assert rows(tmp_path)[1] == {"amount": 0.5}


def test_commits_that_were_cleaned_out_of_the_log(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path))
    for number in (2, 3):
        simple(path, [number], [0.5], mode="append")
    DeltaTable(path).create_checkpoint()
    for number in (0, 1):
        (Path(path) / "_delta_log" / f"{number:020d}.json").unlink()
    refused(tmp_path, orders(path), "CS-613", "commit 1 is not in its log any more")


def test_a_first_version_that_is_gone(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    simple(path, [2], [0.5], mode="overwrite")
    vacuum(path)
    refused(tmp_path, orders(path, version=0), "CS-613", "a file of version 0 is gone")


def vacuum(path: str) -> None:
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_a_table_that_was_made_again(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path))
    shutil.rmtree(path)
    for number in (2, 3, 4):
        simple(path, [number], [0.5], mode="append")
    refused(tmp_path, orders(path), "CS-603", "made again")


def test_a_table_that_is_made_again_while_it_is_read(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    simple(path, [2], [0.5], mode="append")
    builder = cs.StreamsBuilder()
    orders(path)(builder)
    config = cs.StreamsConfig(application_id="shop", state_dir=tmp_path / "state", engine="local")
    with cs.SparkStreams(builder.build(), config) as app:
        app.process_available()
        shutil.rmtree(path)
        simple(path, [3], [0.5])
        with pytest.raises(cs.CrossStreamError, match="CS-603"):
            app.process_available()


def test_another_table_under_the_name_of_a_source(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path, name="orders"))
    simple(f"{path}-2", [2], [0.5])
    refused(tmp_path, orders(f"{path}-2", name="orders"), "CS-603", "its rows would stay")


# -- keys


def test_two_rows_of_a_snapshot_with_one_key(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    simple(path, [2], [2.5], mode="append")
    refused(tmp_path, orders(path), "CS-614", "version 1", "id = 2", "key=[…]")


def test_two_rows_of_a_commit_with_one_key(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path))
    simple(path, [7, 7], [2.5, 3.5], mode="append")
    refused(tmp_path, orders(path), "CS-614", "version 1", "id = 7")


# -- columns


def test_a_column_that_was_dropped(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    frozen = frozen_source(path)
    run(tmp_path, frozen)
    write_deltalake(path, pa.table({"id": [2]}), mode="overwrite", schema_mode="overwrite")
    refused(tmp_path, frozen, "CS-617", "version 1", "no column 'amount'")


@pytest.mark.parametrize(
    "column", [pa.array(["x"]), pa.array([True]), pa.array([1], pa.int64())], ids=["text", "boolean", "long"]
)
def test_a_column_of_another_type(tmp_path: Path, path: str, column: pa.Array) -> None:
    write_deltalake(path, pa.table({"id": [1], "amount": pa.array([1], pa.int32())}))
    frozen = frozen_source(path)
    run(tmp_path, frozen)
    table = pa.table({"id": [2], "amount": column})
    write_deltalake(path, table, mode="overwrite", schema_mode="overwrite")
    refused(tmp_path, frozen, "CS-617", "'amount'", "is read as int32", "version 1")


def frozen_source(path: str) -> Callable[[cs.StreamsBuilder], object]:
    """The source of an application that does not start again: it knows the table as it was."""
    builder = cs.StreamsBuilder()
    orders(path)(builder)

    def build(other: cs.StreamsBuilder) -> None:
        other._draft = builder._draft

    return build


def test_a_column_that_was_added_is_not_read_before_a_new_start(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    frozen = frozen_source(path)
    run(tmp_path, frozen)
    grown = pa.table({"id": [2], "amount": [1.5], "note": ["x"]})
    write_deltalake(path, grown, mode="append", schema_mode="merge")
    run(tmp_path, frozen)
    assert rows(tmp_path) == {1: {"amount": 0.5}, 2: {"amount": 1.5}}
    error = refused(tmp_path, orders(path), "CS-750", "note")
    assert isinstance(error, cs.IncompatibleStateError)


# -- streams


def test_a_stream_over_a_commit_that_changes_rows(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])

    def build(builder: cs.StreamsBuilder) -> None:
        builder.stream_from_delta(path, key="id").to_table(materialized=cs.Materialized(store="orders"))

    run(tmp_path, build)
    DeltaTable(path).delete("id = 1")
    refused(tmp_path, build, "CS-616", "commit 1", "skip_changes=True")


def test_a_time_that_is_null(tmp_path: Path, path: str) -> None:
    write_deltalake(path, pa.table({"page": ["/", "/"], "at": [1, None]}))
    build = lambda builder: builder.stream_from_delta(path, timestamp="at")  # noqa: E731
    refused(tmp_path, build, "CS-507", "'at'", "has nulls")


# -- features


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["variantType"]}, "variantType"),
        ({"minReaderVersion": 3, "readerFeatures": ["futureFeature"]}, "futureFeature"),
    ],
)
def test_a_feature_that_is_not_known(path: str, protocol: dict[str, Any], text: str) -> None:
    simple(path, [1], [0.5])
    change = {**protocol, "minWriterVersion": 7, "writerFeatures": protocol["readerFeatures"]}
    append(path, 1, {"protocol": change})
    with pytest.raises(cs.CrossStreamError, match="CS-615") as caught:
        cs.StreamsBuilder().table_from_delta(path, key="id")
    assert text in str(caught.value)


def test_column_mapping(path: str) -> None:
    simple(path, [1], [0.5])
    log = Path(path) / "_delta_log" / f"{0:020d}.json"
    found = [json.loads(line) for line in log.read_text().splitlines()]
    (metadata,) = (one["metaData"] for one in found if "metaData" in one)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.physicalName": field["name"],
            "delta.columnMapping.id": number,
        }
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {"delta.columnMapping.mode": "name"}
    append(path, 1, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata})
    with pytest.raises(cs.CrossStreamError, match="CS-615") as caught:
        cs.StreamsBuilder().table_from_delta(path, key="id")
    assert "column mapping (mode 'name')" in str(caught.value)


@pytest.mark.skipif(
    not hasattr(DeltaTable, "deletion_vectors"), reason="this deltalake does not show deletion vectors"
)
def test_rows_that_a_deletion_vector_deletes(tmp_path: Path, path: str) -> None:
    """Not the feature is refused, which many writers turn on, but a file with deleted rows."""
    simple(path, [1, 2], [0.5, 1.5])
    features = {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}
    append(path, 1, {"protocol": {**features, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}})
    run(tmp_path, orders(path))
    assert set(rows(tmp_path)) == {1, 2}
    (file,) = DeltaTable(path).file_uris()
    name = Path(file).name
    add = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    append(
        path,
        2,
        {"remove": {"path": name, "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector}},
    )
    frozen = frozen_source(path)
    refused(tmp_path, frozen, "CS-615", "commit 2 deletes rows by a deletion vector")


def append(path: str, version: int, *actions: dict[str, Any]) -> None:
    """A commit as another writer makes it."""
    lines = [json.dumps(action) for action in ({"commitInfo": {"timestamp": 1}}, *actions)]
    (Path(path) / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))


def test_a_preview(path: str) -> None:
    simple(path, [1], [0.5])
    table = cs.StreamsBuilder().table_from_delta(path, key="id")
    with pytest.raises(cs.ConfigError, match="preview reads topics only"):
        table.preview(config=cs.StreamsConfig(application_id="shop", topics_dir="topics"))


def test_a_topic_beside_it_needs_a_place(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])

    def build(builder: cs.StreamsBuilder) -> None:
        builder.table_from_delta(path, key="id").to_stream().to("out")

    refused(tmp_path, build, "CS-203", "neither bootstrap_servers nor topics_dir")


def test_verify_without_the_first_version(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    run(tmp_path, orders(path))
    simple(path, [1, 3], [7.0, 8.0], mode="overwrite")
    run(tmp_path, orders(path))
    vacuum(path)
    builder = cs.StreamsBuilder()
    orders(path)(builder)
    graph = builder.build()
    config = cs.StreamsConfig(application_id="shop", state_dir=tmp_path / "state", engine="local")
    found = verify_results(tmp_path / "state", plan_topology(graph), connection_of(config, graph))
    assert (found.different, [(one.rows, one.unverifiable) for one in found.stores]) == (0, [(2, 0)])
    assert any("the newest versions of lake tables are compared" in note for note in found.notes)
