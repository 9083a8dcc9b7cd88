"""What this machine has: its Java, and a folder for what can be made or fetched again. Nothing heavy is imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_VERSION = 17
"""The oldest Java that works with Spark 4 and a Kafka 4 broker."""
INSTALL = (
    f"install Java {JAVA_VERSION} or later: apt-get install openjdk-{JAVA_VERSION}-jre-headless, "
    f"brew install openjdk@{JAVA_VERSION}, or https://adoptium.net"
)


def cores() -> int:
    """How many cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def java_command() -> str | None:
    """The path of ``java``, in ``JAVA_HOME``, else on ``PATH``; None without Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def no_java() -> str:
    """What an error says without a `java_command`."""
    home = os.environ.get("JAVA_HOME")
    return f"there is no Java in JAVA_HOME ({home})" if home else "there is no Java on this machine"


def java_version(command: str) -> str | None:
    """The version that ``java -version`` prints, such as 17.0.15; 1.8 is 8. None if it cannot run."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.(?=[0-8]\b))?([0-9][0-9.]*)', done.stderr + done.stdout)
    return found[1] if found else None


def noted_version(command: str) -> int | None:
    """The version in the file ``release`` of an installation; None without this file. Java does not run.

    A JRE of Java 8 is one folder deeper. Its version is 1.8.
    """
    for folder in Path(command).resolve().parents[1:3]:
        try:
            text = (folder / "release").read_text(encoding="utf-8")
        except OSError:
            continue
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
        return int(found[1]) if found else None
    return None


def cache_directory() -> Path:
    """Where this machine keeps what can be fetched again: ``$CROSSSTREAM_CACHE``, else in the cache of the user."""
    chosen = os.environ.get("CROSSSTREAM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()).absolute() / f"crossstream-{os.getuid()}"
    return own.absolute() / "crossstream"
