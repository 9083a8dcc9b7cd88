"""`why` on a large table, and on a row of many records: the time that an answer takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import why
from tests.faults.one_process import streams

ROWS = 1_000_000
CORE_SECONDS = {"offers": 2.0, "counts": 2.0, "sums": 5.0}
"""An answer takes one core; beside other tests the clock means nothing. Sums call Python for each pair of records."""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_an_answer_takes_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossstream.recompute.why.SECONDS", 600.0)  # on a busy machine
    why.fill(tmp_path / "topics", ROWS)
    with streams(why.build(), why.config_of(tmp_path)) as app:
        app.process_available()
        for store, key, records in why.questions(ROWS):
            found = why.timed(app.why, store, key)
            print(found)
            assert (found["records"], found["exact"]) == (records, True), found
            assert found["core_seconds"] < CORE_SECONDS[store], found
