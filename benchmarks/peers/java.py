"""Programs in Java that Python starts: built by Maven when they are first wanted, and when their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

JAVA_VERSION = 17


class JavaUnavailable(RuntimeError):
    """The program cannot be built or started here."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """The Maven project in ``folder``, which makes ``target/<name>.jar``."""

    folder: Path
    name: str

    @property
    def jar(self) -> Path:
        return self._target / f"{self.name}.jar"

    def missing(self) -> str | None:
        """Why the program cannot be had on this machine; None if it can. Downloads are not tried."""
        try:
            version = java_version()
        except JavaUnavailable as reason:
            return str(reason)
        if version < JAVA_VERSION:
            return f"Java {version} is too old: {JAVA_VERSION} or newer is needed"
        if shutil.which("mvn") is None and not self._is_built():
            return f"no mvn on the path, and the {self.name} has not been built yet"
        return None

    def build(self) -> None:
        """Builds it if its sources have changed since the last time: from Maven's cache, else online.

        Raises `JavaUnavailable`.
        """
        reason = self.missing()
        if reason is not None:
            raise JavaUnavailable(reason)
        with self._one_builder():
            if self._is_built():
                return
            self._noted.unlink(missing_ok=True)
            if not (self._maven("-o") or self._maven()):
                raise JavaUnavailable(f"mvn could not build {self.folder}: see {self._target / 'build.log'}")
            self._noted.write_text(self._fingerprint())

    @property
    def _target(self) -> Path:
        return self.folder / "target"

    @property
    def _noted(self) -> Path:
        """Where the fingerprint of the sources is noted that the program was built from."""
        return self._target / f"{self.name}.sources.sha256"

    def _is_built(self) -> bool:
        return self.jar.exists() and self._noted.exists() and self._noted.read_text() == self._fingerprint()

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for source in [self.folder / "pom.xml", *sorted((self.folder / "src").rglob("*.java"))]:
            digest.update(source.read_bytes())
        return digest.hexdigest()

    def _maven(self, *options: str) -> bool:
        command = ["mvn", "-B", "-q", *options, "package"]
        with (self._target / "build.log").open("a") as log:
            done = subprocess.run(
                command, check=False, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return done.returncode == 0

    @contextmanager
    def _one_builder(self) -> Iterator[None]:
        """Processes that run side by side build once."""
        self._target.mkdir(exist_ok=True)
        with (self._target / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def java() -> str:
    """The program ``java``: of JAVA_HOME if it is set, else of the path. Raises `JavaUnavailable`."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise JavaUnavailable("no java on the path" if home is None else f"no bin/java in JAVA_HOME {home}")
    return found


def java_version() -> int:
    """The feature release: 17, 21, …"""
    told = subprocess.run([java(), "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise JavaUnavailable(f"java does not tell its version: {told.strip()}")
    return int(version.group(1))
