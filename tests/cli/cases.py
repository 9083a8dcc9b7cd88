"""What the tests of the command line share: a way to call it, applications as files, state without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli import main
from crossstream.planning.plan import StoreDef
from crossstream.query.files import describe_readers
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.store import Version
from crossstream.task.stores import FolderStores
from tests.known_warnings import FILTERS

ROOT = Path(__file__).parents[2]
WARNINGS = ",".join(["default", *FILTERS])
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": WARNINGS}

TEXT = serdes.string()
APP = """
import crossstream as cs
from crossstream import serdes

JSON = cs.Consumed(key=serdes.string(), value=serdes.json())
builder = cs.StreamsBuilder()
products = builder.table("products", JSON)
merchants = builder.table("merchants", JSON)
promotions = products.join(
    merchants,
    lambda product, merchant: {"name": product["name"], "shop": merchant["name"]},
    foreign_key=lambda product: product["merchant"],
    materialized=cs.Materialized(store="promotions"),
)
promotions.to_stream().to("promotions")
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def call(capsys: pytest.CaptureFixture[str], *argv: object) -> Outcome:
    """Runs the command line in this process."""
    try:
        code = main([str(argument) for argument in argv])
    except SystemExit as ended:  # argparse: wrong usage, --help
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)


def start(*argv: object, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, its streams captured."""
    return subprocess.Popen(
        [sys.executable, "-m", "crossstream", *map(str, argv)],
        env=ENVIRONMENT | options.pop("env", {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def app_file(folder: Path, text: str = APP, name: str = "app.py") -> Path:
    """An application as a file."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def saved_state(
    folder: Path | str,
    batches: Sequence[Sequence[tuple[Any, Any]]],
    key: serdes.Serde = TEXT,
    **history: Any,
) -> None:
    """A state folder, or state at a URI, with the store "things" after some batches of rows, batch N at N seconds."""
    builder = cs.StreamsBuilder()
    builder.table(
        "things",
        cs.Consumed(key=key, value=serdes.json()),
        cs.Materialized(store="things", **history),
    )
    topology = builder.build()
    with cs.TopologyTestDriver(topology, partitions=2, commit_every=1000) as driver:
        topic = driver.create_input_topic("things", key, serdes.json())
        log, stores = BatchLog(folder), FolderStores(folder)
        plan = driver.plan
        log.write_application(Application("shop", 2, plan.fingerprint(), describe_readers(plan)))
        for number, rows in enumerate(batches):
            for name, value in rows:
                topic.pipe_input(name, value, timestamp=1000 * number)
            driver.commit()
            saved: Mapping[tuple[str, int], Version] = driver._stores.versions
            names: dict[str, dict[int, str]] = {}
            for (store, pid), version in saved.items():
                names.setdefault(store, {})[pid] = _kept(stores, plan.stores[store], pid, version, number)
            log.write_commit(Commit(number, 2, {}, names, 1_700_000_000.0 + number))


def _kept(stores: FolderStores, store: StoreDef, pid: int, version: Version, batch: int) -> str:
    save = stores.saver(store, pid, batch)
    parts = tuple(
        replace(part, segments=tuple(save(segment.run) for segment in part.segments))
        for part in version.parts
    )
    name = stores.save(store, pid, replace(version, parts=parts, batch=batch)).name
    assert name is not None
    return name
