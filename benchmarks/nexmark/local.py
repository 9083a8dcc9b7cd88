"""A query in this process, from topics in a folder: without Kafka, without Spark.

``python -m benchmarks.nexmark.local q3 q4 --events 1000000`` runs queries so, compares them with DuckDB, and says what
they took: core-seconds of the engine alone.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import polars as pl
import pyarrow as pa

import crossstream as cs
from benchmarks.nexmark.events import START_MS, Events, closers, events, side_input
from benchmarks.nexmark.queries import OURS, topology
from benchmarks.nexmark.reference import expected
from benchmarks.nexmark.results import RECORDS, differs, rows_of
from benchmarks.nexmark.sending import KEYS, chunks, lines
from benchmarks.nexmark.topics import PARTITIONS, SIDE_INPUT, TABLES, Topics
from crossstream.filetopics import FileTopics
from crossstream.records import PRODUCER_RECORDS
from crossstream.topics import OffsetRange, TopicPartition

TOPICS = Topics.of("nexmark")


def fill(folder: Path, rows: Events) -> None:
    """Writes events and closers into topics in a folder."""
    files = FileTopics(str(folder), durable=False)
    for table in (*TABLES, SIDE_INPUT):
        files.log().create_topic(TOPICS.input(table), PARTITIONS)
    writer = files.writer()
    for table, chunk in [(SIDE_INPUT, side_input()), *chunks(rows.and_then(closers()))]:
        writer.write(TOPICS.input(table), records(table, chunk))
    writer.close()


def records(table: str, rows: pl.DataFrame) -> pa.RecordBatch:
    """Rows of a table as records."""
    columns = [
        rows[KEYS[table]].cast(pl.String).cast(pl.Binary).to_arrow(),
        lines(rows).cast(pl.Binary).to_arrow(),
        rows.get_column("dateTime", default=pl.repeat(START_MS, len(rows), eager=True)).to_arrow(),
        pa.nulls(len(rows), pa.large_binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCER_RECORDS)


def run(query: str, folder: Path, partitions: int = 2, max_records: int | None = None) -> float:
    """Runs a query on all there is in a folder, from an empty state, and returns core-seconds."""
    FileTopics(str(folder)).log().create_topic(TOPICS.result(query), PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="crossstream-nexmark-") as state:
        config = cs.StreamsConfig(
            application_id=query,
            topics_dir=str(folder),
            state_dir=state,
            engine="local",
            partitions=partitions,
            max_records_per_batch=max_records,
        )
        built = topology(query, TOPICS)
        began = time.process_time()
        with cs.SparkStreams(built, config) as app:
            app.process_available()
        return time.process_time() - began


def results(query: str, folder: Path) -> pl.DataFrame:
    """The records of the results, in the order of each partition, as `RECORDS`."""
    files = FileTopics(str(folder))
    places = [TopicPartition(TOPICS.result(query), number) for number in range(PARTITIONS)]
    ends = files.log().end_offsets(places)
    reader, found = files.reader(), [RECORDS.to_frame()]
    for place in places:
        for batch in reader.read(OffsetRange(place.topic, place.partition, 0, ends[place]), 100_000):
            columns = {name: pl.Series(batch[name], dtype=pl.Binary) for name in RECORDS}
            found.append(pl.DataFrame(columns))
    return pl.concat(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", nargs="*", default=list(OURS))
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--max-records", type=int)
    arguments = parser.parse_args()
    rows, faults = events(arguments.events), 0
    with tempfile.TemporaryDirectory(prefix="crossstream-nexmark-topics-") as folder:
        fill(Path(folder), rows)
        for query in arguments.queries:
            cores = run(query, Path(folder), max_records=arguments.max_records)
            wanted = expected(query, rows)
            written = results(query, Path(folder))
            fault = differs(query, rows_of(query, written, wanted.schema), wanted)
            faults += fault is not None
            line = {"query": query, "cores": round(cores, 2), "rows": len(wanted), "records": len(written)}
            print(json.dumps(line | ({"fault": fault} if fault else {})), flush=True)
    return faults


if __name__ == "__main__":
    raise SystemExit(main())
