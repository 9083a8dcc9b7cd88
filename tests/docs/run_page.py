"""Runs pages from their first block to their last, as a reader would who types what they say.

    python -m tests.docs.run_page README.md docs/queries.md

Each page runs in the folder ``<current folder>/<its name>``. Prints a JSON line for each: page, error,
seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, Block, blocks


def run_python(block: Block, module: types.ModuleType) -> None:
    """Runs a block among the names of ``module``."""
    exec(block.compiled(), vars(module))  # type: ignore[arg-type]


def run_page(page: Path, module: types.ModuleType) -> None:
    """Runs all that can be run."""
    for block in blocks(page):
        if block.language == "python" and "no-run" not in block.tags:
            run_python(block, module)
        elif block.tags == ("sh", "spark"):
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], check=True)


def _outcome(page: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    module = types.ModuleType("__main__")
    started = time.monotonic()
    try:
        run_page(page, module)
        error = None
    except Exception:
        error = traceback.format_exc()
    return {"page": str(page.relative_to(ROOT)), "error": error, "seconds": time.monotonic() - started}


def main(names: list[str]) -> None:
    """Runs the pages named."""
    here = Path.cwd()
    for name in names:
        print("\n" + json.dumps(_outcome(ROOT / name, here / name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
