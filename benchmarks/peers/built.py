"""Programs in other languages that Python starts: built when they are first wanted, and when their sources change."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class Unavailable(RuntimeError):
    """The program cannot be built or started here."""


@dataclass(frozen=True, slots=True)
class Program(ABC):
    """The project in ``folder``, which makes the program ``name``."""

    folder: Path
    name: str
    offline: ClassVar[str]
    """The option with which the tool takes what it has fetched before."""

    @abstractmethod
    def missing(self) -> str | None:
        """Why the program cannot be had on this machine; None if it can. Downloads are not tried."""

    @property
    @abstractmethod
    def made(self) -> Path:
        """The program itself."""

    @property
    @abstractmethod
    def target(self) -> Path:
        """Where it is built."""

    @abstractmethod
    def sources(self) -> Sequence[Path]:
        """What it is built from."""

    @abstractmethod
    def command(self, *options: str) -> list[str]:
        """Builds it, in its folder."""

    def build(self) -> None:
        """Builds it if its sources have changed since the last time: from the tool's cache, else online.

        Raises `Unavailable`.
        """
        reason = self.missing()
        if reason is not None:
            raise Unavailable(reason)
        with self._one_builder():
            if self.is_built():
                return
            self._noted.unlink(missing_ok=True)
            if not (self._run(self.offline) or self._run()):
                tool = self.command()[0]
                raise Unavailable(f"{tool} could not build {self.folder}: see {self.target / 'build.log'}")
            self._noted.write_text(self._fingerprint())

    def is_built(self) -> bool:
        """Whether there is a program of these sources."""
        return self.made.exists() and self._noted.exists() and self._noted.read_text() == self._fingerprint()

    @property
    def _noted(self) -> Path:
        """Where the fingerprint of the sources is noted that the program was built from."""
        return self.target / f"{self.name}.sources.sha256"

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for source in self.sources():
            digest.update(source.read_bytes())
        return digest.hexdigest()

    def _run(self, *options: str) -> bool:
        with (self.target / "build.log").open("a") as log:
            done = subprocess.run(
                self.command(*options),
                check=False,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return done.returncode == 0

    @contextmanager
    def _one_builder(self) -> Iterator[None]:
        """Processes that run side by side build once."""
        self.target.mkdir(parents=True, exist_ok=True)
        with (self.target / "build.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
