"""The folder of the demo: topics, state and the application."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from crossstream.errors import ConfigError

MARK = ".crossstream-demo"
"""A file that marks a folder as made by the demo."""
MADE = ("topics", "state", "marketplace.py", "spark.log", "__pycache__")
"""What the demo makes in it; it deletes nothing else."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its topics, its state and its application."""

    path: Path

    @property
    def application(self) -> Path:
        """The application, a file for `crossstream run`."""
        return self.path / "marketplace.py"

    @property
    def topics(self) -> Path:
        return self.path / "topics"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def log(self) -> Path:
        """Spark's log."""
        return self.path / "spark.log"

    def empty(self) -> None:
        """Makes the folder, or removes what an earlier demo made; `ConfigError` CS-281 if another program made it."""
        mark = self.path / MARK
        if not mark.is_file() and self._is_taken():
            raise ConfigError(
                "the folder of the demo exists, but the demo did not make it",
                code="CS-281",
                where={"folder": self.path},
                next="choose another one with --dir, or move it away",
            )
        try:
            for name in MADE:
                _remove(self.path / name)
            self.path.mkdir(parents=True, exist_ok=True)
            mark.write_text("made by crossstream demo\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"the folder of the demo cannot be made: {error.strerror}",
                code="CS-281",
                where={"folder": self.path},
                next="choose another one with --dir",
            ) from error

    def _is_taken(self) -> bool:
        return self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir()))

    def write_application(self, bootstrap_servers: str | None = None, suffix: str = "") -> None:
        """Writes the application for file topics or Kafka; ``suffix`` follows the names of topics."""
        text = Path(__file__).with_name("marketplace.py").read_text(encoding="utf-8")
        if bootstrap_servers is not None:
            text = _replaced(text, 'topics_dir=HERE / "topics"', f'bootstrap_servers="{bootstrap_servers}"')
        for start in ('builder.table("products', 'builder.table("merchants', '.to("promotions'):
            text = _replaced(text, start + '"', f'{start}{suffix}"')
        self.application.write_text(text, encoding="utf-8")


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is {text.count(old)} times in the application of the demo")
    return text.replace(old, new)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
