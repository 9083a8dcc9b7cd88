"""What docs/changing-an-application.md shows is what its commands print. They need no Spark."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.conftest import Readers
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "changing-an-application.md"
VARYING = re.compile(r"in [\d.]+ s$|[\d.]+ kB", re.MULTILINE)
"""Seconds, and sizes of files, which depend on the versions of libraries."""


@pytest.mark.slow
def test_the_page_shows_what_is_printed(on_spark: Readers, tmp_path: Path) -> None:
    printed = ""
    for block in blocks(PAGE):
        if block.tags == ("sh", "spark"):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.code],
                cwd=tmp_path,
                env={**on_spark.environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            printed = VARYING.sub("", done.stdout)
        elif block.code.startswith(("shop: state", "this is batch")):
            assert VARYING.sub("", block.code) in printed
    records = [line for line in printed.splitlines() if line.startswith('{"key":"o1"')]
    assert len(records) == 2
