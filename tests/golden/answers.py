"""What mistakes are answered with, kept in a text file under the name of each. ``UPDATE_GOLDEN=1`` writes the texts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

import crossstream as cs

SECONDS = 1.0


@dataclass(frozen=True)
class Answers:
    """The texts of a file. ``names``: of all mistakes, in their order."""

    file: Path
    names: Iterable[str]

    def pinned(self) -> dict[str, str]:
        if not self.file.exists():
            return {}
        parts = re.split(r"^## (.*)\n", self.file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}

    def check(self, name: str, text: str) -> None:
        """That the text is the one of the file."""
        if os.environ.get("UPDATE_GOLDEN"):
            known = {**self.pinned(), name: text}
            kept = "".join(f"## {one}\n\n{known[one]}\n\n" for one in self.names if one in known)
            self.file.write_text(kept.rstrip() + "\n", encoding="utf-8")
        assert text == self.pinned()[name]
        assert "next:" in text


@dataclass(frozen=True)
class Seconds:
    """What an answer took. ``cpu``: of this process, which a busy machine does not make longer."""

    wall: float
    cpu: float


def answer(mistake: Callable[[], object], folder: Path) -> tuple[str, Seconds]:
    """The error of a mistake, without what differs from run to run, and what it took."""
    began, worked = time.monotonic(), time.process_time()
    with pytest.raises(cs.CrossStreamError) as caught:
        mistake()
    seconds = Seconds(time.monotonic() - began, time.process_time() - worked)
    text = str(caught.value).replace(str(folder), "FOLDER")
    text = re.sub(r"\S*/(\w+\.py):\d+", r"\1", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7077", text)
    text = re.sub(r"(process|pid) \d+", r"\1 N", text)
    text = re.sub(r"part-[0-9a-f-]+-c000", "part-N", text)
    text = re.sub(r"(this DataFrame: ).*", r"\1SPARK'S REASON", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text), seconds
