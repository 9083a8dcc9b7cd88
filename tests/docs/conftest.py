"""One run of all pages that need Spark, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of

SPARK_PAGES = [name_of(page) for page in PAGES if any("spark" in block.tags for block in blocks(page))]

SHIMS = {
    "crossstream": '#!/bin/sh\nexec "{python}" -m crossstream "$@"\n',
    "python": '#!/bin/sh\nexec "{python}" "$@"\n',
}


@dataclass(frozen=True)
class Readers:
    """What happened on each page, and the folder in which each ran."""

    errors: Mapping[str, str | None]
    folder: Path

    def folder_of(self, page: str) -> Path:
        return self.folder / page


@pytest.fixture(scope="session")
def on_spark(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    """Runs every page with blocks for Spark, from beginning to end."""
    folder = tmp_path_factory.mktemp("pages")
    programs = tmp_path_factory.mktemp("bin")
    for name, text in SHIMS.items():
        shim = programs / name
        shim.write_text(text.format(python=sys.executable))
        shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_page", *SPARK_PAGES],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"page"')]
    assert len(outcomes) == len(SPARK_PAGES), done.stdout + done.stderr
    return Readers({outcome["page"]: outcome["error"] for outcome in outcomes}, folder)
