"""The part in C that reads JSON, under the address and undefined-behaviour sanitizers, on garbled rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.kafka.native.test_memory import ROOT, compiled


def test_nothing_is_read_behind_the_end_of_a_row(tmp_path: Path) -> None:
    program = tmp_path / "check"
    compiled(program, Path(__file__).with_name("check.c"), ROOT / "native" / "src" / "json.c")
    ran = subprocess.run([program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
