"""A program that writes values in one process and reads them in another, as Spark's driver and workers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def read_in_another_process(folder: Path, program: str) -> bytes:
    """What the program prints for ``read``, given what it printed for ``write``."""
    script = folder / "app.py"
    script.write_text(program)

    def run(step: str, given: bytes = b"") -> bytes:
        command = [sys.executable, str(script), step]
        environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
        done = subprocess.run(command, input=given, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run("read", run("write"))
