"""Programs in Rust that Python starts: built by Cargo when they are first wanted, and when their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crossstream.machine import cache_directory


class CargoUnavailable(RuntimeError):
    """The program cannot be built here."""


@dataclass(frozen=True, slots=True)
class CargoProgram:
    """The Cargo project in ``folder``, which makes the program ``name``; it is built below the user's cache.

    ``rust``: the oldest version that builds what it needs.
    """

    folder: Path
    name: str
    rust: tuple[int, int]

    @property
    def path(self) -> Path:
        return self._target / "release" / self.name

    def missing(self) -> str | None:
        """Why the program cannot be had on this machine; None if it can. Downloads are not tried."""
        if self.is_built():
            return None
        if shutil.which("cargo") is None:
            return f"no cargo on the path, and {self.name} has not been built yet"
        told = subprocess.run(["rustc", "--version"], check=False, capture_output=True, text=True).stdout
        version = re.match(r"rustc (\d+)\.(\d+)", told)
        if version is None or (int(version[1]), int(version[2])) < self.rust:
            return f"{told.strip() or 'no rustc'}: Rust {self.rust[0]}.{self.rust[1]} or newer is needed"
        return None

    def build(self) -> None:
        """Builds it if its sources have changed since the last time: from Cargo's cache, else online.

        The first time takes many minutes. Raises `CargoUnavailable`.
        """
        reason = self.missing()
        if reason is not None:
            raise CargoUnavailable(reason)
        with self._one_builder():
            if self.is_built():
                return
            self._noted.unlink(missing_ok=True)
            if not (self._cargo("--offline") or self._cargo()):
                raise CargoUnavailable(
                    f"cargo could not build {self.folder}: see {self._target / 'build.log'}"
                )
            self._noted.write_text(self._fingerprint())

    def is_built(self) -> bool:
        """Whether there is a program of these sources."""
        return self.path.exists() and self._noted.exists() and self._noted.read_text() == self._fingerprint()

    @property
    def _target(self) -> Path:
        return cache_directory() / f"{self.folder.name}-target"

    @property
    def _noted(self) -> Path:
        """Where the fingerprint of the sources is noted that the program was built from."""
        return self._target / f"{self.name}.sources.sha256"

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        sources = sorted((self.folder / "src").rglob("*.rs"))
        for source in [self.folder / "Cargo.toml", self.folder / "Cargo.lock", *sources]:
            digest.update(source.read_bytes())
        return digest.hexdigest()

    def _cargo(self, *options: str) -> bool:
        command = ["cargo", "build", "--release", "--locked", "--target-dir", str(self._target), *options]
        with (self._target / "build.log").open("a") as log:
            done = subprocess.run(
                command, check=False, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return done.returncode == 0

    @contextmanager
    def _one_builder(self) -> Iterator[None]:
        """Processes that run side by side build once."""
        self._target.mkdir(parents=True, exist_ok=True)
        with (self._target / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
