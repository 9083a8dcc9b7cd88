"""A process in the background: started, recognised, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

EXEC_SECONDS = 1.0
"""How long a process may take to become another program."""


def start_detached(command: Sequence[str], log_file: Path, directory: Path) -> int:
    """Starts a process that outlives this one, writing to ``log_file``; its id."""
    script = 'nohup "$@" >>"$0" 2>&1 </dev/null & echo $!'
    shell = ["/bin/sh", "-c", script, str(log_file), *command]
    started = subprocess.run(
        shell, cwd=directory, start_new_session=True, capture_output=True, text=True, check=True
    )
    return int(started.stdout)


def is_running(pid: int, mark: str) -> bool:
    """Whether the process lives and has ``mark`` in its command line (ids are used again)."""
    if Path("/proc/self/stat").exists():
        return mark in _command_line(pid) and _state(pid) not in ("Z", "X", "")
    told = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "stat=,command="], capture_output=True, text=True, check=False
    )
    return mark in told.stdout and not told.stdout.lstrip().startswith("Z")


def end(pid: int, mark: str, seconds: float) -> bool:
    """Asks the process to end, kills it after ``seconds``; whether it is gone."""
    for request, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if not is_running(pid, mark):
            return True
        try:
            os.kill(pid, request)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        if _awaited(pid, mark, patience):
            return True
    return False


def _awaited(pid: int, mark: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not is_running(pid, mark):
            return True
        time.sleep(0.05)
    return False


def _command_line(pid: int) -> str:
    """What the process was started with; while it becomes another program it has none, for a moment."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (found := _proc(pid, "cmdline")) and _state(pid) not in ("Z", "X", ""):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return found.replace("\0", " ")


def _state(pid: int) -> str:
    return _proc(pid, "stat").rpartition(")")[2].strip()[:1]


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
