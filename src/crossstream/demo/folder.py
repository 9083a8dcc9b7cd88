"""The folder of the demo: made, recognised, emptied."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from crossstream.errors import ConfigError

MARK = ".crossstream-demo"
"""A file that says that a folder was made by the demo."""
MADE = ("topics", "state", "kafka", "marketplace.py", "spark.log", "__pycache__")
"""What the demo makes in it, and nothing else is ever deleted."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its topics, its state and its application."""

    path: Path

    @property
    def application(self) -> Path:
        """The application, a file that `crossstream run` takes."""
        return self.path / "marketplace.py"

    @property
    def topics(self) -> Path:
        return self.path / "topics"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def kafka(self) -> Path:
        """Where a broker of the demo's own keeps its data."""
        return self.path / "kafka"

    @property
    def log(self) -> Path:
        """What Spark logged."""
        return self.path / "spark.log"

    def empty(self) -> None:
        """Makes the folder, or removes what an earlier demo made; `ConfigError` CS-281 if it is not ours, or fails."""
        if not self._mark.is_file() and self._is_taken():
            raise ConfigError(
                "the folder of the demo exists and was not made by it",
                code="CS-281",
                where={"folder": self.path},
                next="choose another one with --dir, or move it out of the way",
            )
        try:
            for name in MADE:
                _remove(self.path / name)
            self.path.mkdir(parents=True, exist_ok=True)
            self.note_port(None)
        except OSError as error:
            raise ConfigError(
                f"the folder of the demo cannot be made: {error.strerror}",
                code="CS-281",
                where={"folder": self.path},
                next="choose another one with --dir",
            ) from error

    def note_port(self, port: int | None) -> None:
        """Remembers at which port a broker was started on this folder."""
        self._mark.write_text(
            json.dumps({"made by": "crossstream demo", "port": port}) + "\n", encoding="utf-8"
        )

    @property
    def port(self) -> int | None:
        """The port of the last broker that was started on this folder."""
        try:
            port = json.loads(self._mark.read_text(encoding="utf-8"))["port"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return port if isinstance(port, int) else None

    @property
    def _mark(self) -> Path:
        return self.path / MARK

    def _is_taken(self) -> bool:
        return self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir()))

    def write_application(self, bootstrap_servers: str | None = None, suffix: str = "") -> None:
        """Puts the application there: on file topics, or on Kafka; ``suffix``: after the names of topics."""
        text = Path(__file__).with_name("marketplace.py").read_text(encoding="utf-8")
        if bootstrap_servers is not None:
            text = _once(text, 'topics_dir=HERE / "topics"', f'bootstrap_servers="{bootstrap_servers}"')
        for start in ('builder.table("products', 'builder.table("merchants', '.to("promotions'):
            text = _once(text, start + '"', f'{start}{suffix}"')
        self.application.write_text(text, encoding="utf-8")


def _once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is {text.count(old)} times in the application of the demo")
    return text.replace(old, new)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
