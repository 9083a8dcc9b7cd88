"""A data source of Spark in Python that streams rows: a folder of JSON, a file for each step and partition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

SCHEMA = "key string, number bigint, _change_type string, _commit_version bigint, _commit_timestamp timestamp"


class Feed(DataSource):
    """Options: ``folder``. A step is a micro-batch at most; its partitions are the files of its folder."""

    @classmethod
    def name(cls) -> str:
        return "feed"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return FeedReader(self.options["folder"])


class FilePartition(InputPartition):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class FeedReader(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def initialOffset(self) -> dict[str, int]:
        return {"step": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"step": len(list(Path(self.folder).iterdir()))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FilePartition]:
        steps = range(start["step"], end["step"])
        files = [str(path) for step in steps for path in sorted((Path(self.folder) / f"{step}").iterdir())]
        return [FilePartition(path) for path in files]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        for row in json.loads(Path(partition.path).read_text()):
            yield (*row[:4], datetime.fromtimestamp(row[4] / 1000, timezone.utc))

    def commit(self, end: dict[str, int]) -> None: ...


def put(folder: Path, parts: Sequence[Sequence[Any]]) -> None:
    """The next step, with a partition for each part."""
    folder.mkdir(exist_ok=True)
    step = folder / str(len(list(folder.iterdir())))
    step.mkdir()
    for number, rows in enumerate(parts):
        (step / f"{number}.json").write_text(json.dumps(list(rows)))


def feed(spark: Any, folder: Path) -> Any:
    """A streaming DataFrame of what is `put` into the folder."""
    spark.dataSource.register(Feed)
    return spark.readStream.format("feed").option("folder", str(folder)).load()
