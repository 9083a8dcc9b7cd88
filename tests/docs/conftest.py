"""Runs of pages that need Spark, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name_of

SPARK_PAGES = [name_of(page) for page in PAGES if any("spark" in block.tags for block in blocks(page))]
EACH_TIME = ["README.md", "docs/quickstart.md", "docs/queries.md"]
"""What people read first. Other pages run nightly."""

SHIMS = {
    "crossstream": '#!/bin/sh\nexec "{python}" -m crossstream "$@"\n',
    "python": '#!/bin/sh\nexec "{python}" "$@"\n',
}


@dataclass(frozen=True)
class Readers:
    """Runs pages from beginning to end, each once, and knows what happened on them."""

    folder: Path
    environment: Mapping[str, str]
    errors: dict[str, str | None] = field(default_factory=dict)

    def error_of(self, page: str) -> str | None:
        """What was wrong on the page. The pages that are read each time share one session of Spark."""
        if page not in self.errors:
            self._run(*(EACH_TIME if page in EACH_TIME else [page]))
        return self.errors[page]

    def folder_of(self, page: str) -> Path:
        """Where the page ran."""
        assert self.error_of(page) is None
        return self.folder / page

    def _run(self, *pages: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "tests.docs.run_page", *pages],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"page"')]
        assert len(outcomes) == len(pages), done.stdout + done.stderr
        self.errors.update((outcome["page"], outcome["error"]) for outcome in outcomes)


@pytest.fixture(scope="session")
def on_spark(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    """Readers of the pages with blocks for Spark, who type what they say."""
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
    return Readers(tmp_path_factory.mktemp("pages"), environment)
