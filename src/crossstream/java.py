"""Finds the Java for Spark and Kafka's development broker: in ``JAVA_HOME``, else on ``PATH``."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

JAVA_VERSION = 17
"""The oldest Java that works with Spark 4 and a Kafka 4 broker."""
INSTALL = (
    f"install Java {JAVA_VERSION} or later: apt-get install openjdk-{JAVA_VERSION}-jre-headless, "
    f"brew install openjdk@{JAVA_VERSION}, or https://adoptium.net"
)


def java_command() -> str | None:
    """The path of ``java``; None without Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def no_java() -> str:
    """What an error says without a `java_command`."""
    home = os.environ.get("JAVA_HOME")
    return f"there is no Java in JAVA_HOME ({home})" if home else "there is no Java on this machine"


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
