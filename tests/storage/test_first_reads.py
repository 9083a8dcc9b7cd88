"""Files of state that several threads of a new process read at once, as a start does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crossstream

READERS = """
import sys, threading
from pathlib import Path
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import Folder
from crossstream.storage.manifest import read_manifest

folder, failed, barrier = Path(sys.argv[1]), [], threading.Barrier(8)
read = {
    "manifest": lambda: read_manifest(Folder(folder), "a.manifest"),
    "commit": lambda: BatchLog(folder).commit(0),
}[sys.argv[2]]

def reads():
    barrier.wait()
    for _ in range(20):
        try:
            read()
        except Exception as error:
            failed.append(error)

threads = [threading.Thread(target=reads) for _ in range(8)]
sys.setswitchinterval(1e-6)
for one in threads:
    one.start()
for one in threads:
    one.join()
assert not failed, failed[0]
"""

WRITER = """
import sys
from pathlib import Path
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import Folder
from crossstream.storage.log_entries import Commit, SourceRange
from crossstream.storage.manifest import LevelRef, Manifest, SegmentRef, write_manifest

folder = Path(sys.argv[1])
levels = (LevelRef((SegmentRef("a.arrow", 0, 9, 1, 2, 3, "4"),)),)
write_manifest(Folder(folder), Manifest("a.manifest", "kv", 0, levels))
log = BatchLog(folder)
log.lock("app")
log.write_commit(Commit(0, 1, versions={"s": {0: "a.manifest"}}, positions={"in": {"in": {0: 5}}}))
log.unlock()
"""


def run(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["manifest", "commit"])
def test_threads_that_read_first_do_not_end_the_process(tmp_path: Path, what: str) -> None:
    """msgspec fills in a class when it first decodes one, and a thread that decodes the class meanwhile crashed."""
    run(WRITER, str(tmp_path))
    for _ in range(3):
        run(READERS, str(tmp_path), what)


@pytest.mark.slow
def test_decoders_of_our_classes_are_made_when_their_module_is_loaded() -> None:
    """One thread loads a module; where a decoder is made later, two threads may make it."""
    root = Path(crossstream.__file__).parent
    found = [
        f"{path.relative_to(root)}:{call.lineno}"
        for path in root.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "decode"
        and any(keyword.arg == "type" for keyword in call.keywords)
    ]
    assert found == []
