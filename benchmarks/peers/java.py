"""Programs in Java, built by Maven."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.built import Program, Unavailable

JAVA_VERSION = 17


@dataclass(frozen=True, slots=True)
class JavaProgram(Program):
    """The Maven project in ``folder``, which makes ``target/<name>.jar``."""

    offline: ClassVar[str] = "-o"

    @property
    def made(self) -> Path:
        return self.target / f"{self.name}.jar"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def missing(self) -> str | None:
        try:
            version = java_version()
        except Unavailable as reason:
            return str(reason)
        if version < JAVA_VERSION:
            return f"Java {version} is too old: {JAVA_VERSION} or newer is needed"
        if shutil.which("mvn") is None and not self.is_built():
            return f"no mvn on the path, and the {self.name} has not been built yet"
        return None

    def sources(self) -> Sequence[Path]:
        return [self.folder / "pom.xml", *sorted((self.folder / "src").rglob("*.java"))]

    def command(self, *options: str) -> list[str]:
        return ["mvn", "-B", "-q", *options, "package"]


def java() -> str:
    """The program ``java``: of JAVA_HOME if it is set, else of the path. Raises `Unavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise Unavailable("no java on the path" if home is None else f"no bin/java in JAVA_HOME {home}")
    return found


def java_version() -> int:
    """The feature release: 17, 21, …"""
    told = subprocess.run([java(), "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise Unavailable(f"java does not tell its version: {told.strip()}")
    return int(version.group(1))
