"""Programs in Rust, built by Cargo."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.built import Program
from crossstream.machine import cache_directory


@dataclass(frozen=True, slots=True)
class CargoProgram(Program):
    """The Cargo project in ``folder``, which makes the program ``name``; it is built below the user's cache.

    ``rust``: the oldest version that builds what it needs. The first time takes many minutes.
    """

    rust: tuple[int, int]
    offline: ClassVar[str] = "--offline"

    @property
    def made(self) -> Path:
        return self.target / "release" / self.name

    @property
    def target(self) -> Path:
        return cache_directory() / f"{self.folder.name}-target"

    def missing(self) -> str | None:
        if self.is_built():
            return None
        if shutil.which("cargo") is None:
            return f"no cargo on the path, and {self.name} has not been built yet"
        told = subprocess.run(["rustc", "--version"], check=False, capture_output=True, text=True).stdout
        version = re.match(r"rustc (\d+)\.(\d+)", told)
        if version is None or (int(version[1]), int(version[2])) < self.rust:
            return f"{told.strip() or 'no rustc'}: Rust {self.rust[0]}.{self.rust[1]} or newer is needed"
        return None

    def sources(self) -> Sequence[Path]:
        sources = sorted((self.folder / "src").rglob("*.rs"))
        return [self.folder / "Cargo.toml", self.folder / "Cargo.lock", *sources]

    def command(self, *options: str) -> list[str]:
        return ["cargo", "build", "--release", "--locked", "--target-dir", str(self.target), *options]
