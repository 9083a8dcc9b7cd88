"""The file that a command is about, and the name in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def split(target: str) -> tuple[str, str]:
    """The path and the name in ``file.py:name``."""
    path, colon, name = target.rpartition(":")
    return (path, name) if colon and not Path(target).exists() else (target, "")


def on_path(folder: Path) -> None:
    """Lets the file import its neighbours, in this process and in the workers on this machine."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])
