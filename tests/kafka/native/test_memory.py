"""The C part under the address and undefined-behaviour sanitizers, against a broker of librdkafka's own."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import cimpl

ROOT = Path(__file__).parents[3]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


class _Found(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def librdkafka() -> str:
    """The file of the library that the Python client is linked with."""
    function = ctypes.cast(ctypes.CDLL(cimpl.__file__).rd_kafka_version, ctypes.c_void_p)
    found = _Found()
    assert ctypes.CDLL(None).dladdr(function, ctypes.byref(found))
    return os.fsdecode(found.file)


def compiled(program: Path, *sources: Path) -> None:
    """Skips the test where there is no compiler with sanitizers."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    headers = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", f"-I{ROOT / 'native' / 'src'}"]
    command = [compiler, *headers, *SANITIZERS, "-o", str(program), *map(str, sources), "-ldl", "-pthread"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0 and "san" in made.stderr:
        pytest.skip(f"the C compiler has no sanitizers: {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr


def test_memory_is_freed_once_and_nothing_is_read_behind_its_end(tmp_path: Path) -> None:
    program = tmp_path / "check"
    compiled(program, Path(__file__).with_name("check.c"), *sorted((ROOT / "native" / "src").glob("*.c")))
    ran = subprocess.run([program, librdkafka()], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
