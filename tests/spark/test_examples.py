"""The examples that need Spark, in the session that tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossstream.cli.loading import execute
from tests.spark.fixtures import ROOT

pytestmark = [pytest.mark.spark]


@pytest.mark.parametrize("name", ["for_each_batch", "from_spark", "query_from_another_process"])
def test_the_example_runs_through(name: str, spark: Any, tmp_path: Path, capsys: Any) -> None:
    execute(ROOT / "examples" / f"{name}.py").main(str(tmp_path), spark)
    assert len(capsys.readouterr().out.splitlines()) == 1
