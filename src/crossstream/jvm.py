"""Spark's JVM: its settings, the archive of its classes, and a JVM that starts before its session is wanted.

Both shorten a start (decision 0037). Nothing heavy is imported here, PySpark least of all: the JVM loads while this
process still imports the rest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossstream.machine import cache_directory, java_command

DEFAULTS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "crossstream.spark.daemon",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.log.level": "ERROR",
}
"""What the engine sets where the user does not.

The JVM moves blobs and schedules; it runs no code of ours that the optimising compiler could pay back. Without
that compiler it needs less than half of the core time of a batch (decision 0009).
"""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the small JVM by which Spark's script finds the command of the JVM."""

_AT_EXIT = "ArchiveClassesAtExit"
_LATER = ("spark.app.name", "spark.log.level", "spark.master", "spark.sql.", "spark.ui.")
"""Settings that a session takes after its JVM has started."""
_ELSEWHERE = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_API_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_MASTER",
    "SPARK_REMOTE",
    "SPARK_TESTING",
)
"""Variables that let Spark start in another way."""


def settings_of(given: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a session: those that are ``given``, and the defaults; the JVM has the archive of its classes."""
    settings = {
        **DEFAULTS,
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        **{name: str(value) for name, value in given.items()},
    }
    archive = None if JAVA_OPTIONS in given else archive_of_classes()
    if archive is not None:
        kind = "SharedArchiveFile" if archive.exists() else _AT_EXIT
        settings[JAVA_OPTIONS] += f' -Xlog:cds*=off "-XX:{kind}={archive}"'
    return settings


def archive_of_classes() -> Path | None:
    """The file of classes that a JVM writes when it ends, and the next ones map; None if there is no place for it.

    It belongs to one Java and one Spark. Java checks that, and loads the classes as usual if it does not fit.
    """
    java, jars = java_command(), _spark_home() / "jars"
    if java is None:
        return None
    try:
        home = Path(java).resolve().parents[1]
        parts = (home, (home / "release").read_text(encoding="utf-8"), jars, int(jars.stat().st_mtime))
        folder = cache_directory() / "jvm"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.jsa"


def _spark_home() -> Path:
    """The folder of Spark: that of PySpark, which is not imported for it."""
    found = importlib.util.find_spec("pyspark")
    own = found.submodule_search_locations if found is not None else None
    return Path(os.environ.get("SPARK_HOME") or (own or [""])[0])


class EarlyJvm:
    """A JVM of Spark that waits for its session; `begin` starts one.

    It ends with this process. ``output``: what it prints can be read there.
    """

    def __init__(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._is_adopted = False
        self._folder = tempfile.mkdtemp(prefix="crossstream-jvm-")
        self._file = Path(self._folder) / "connection"
        self.output, writing = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    str(_spark_home() / "bin" / "spark-submit"),
                    *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
                    "pyspark-shell",
                ],
                stdin=subprocess.PIPE,
                stdout=writing,
                stderr=writing,
                env={
                    **environment,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._file),
                },
                preexec_fn=_ignore_interrupts,
            )
        except BaseException:
            os.close(self.output)
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            os.close(writing)

    @classmethod
    def begin(cls, given: Mapping[str, str]) -> EarlyJvm | None:
        """Starts one for a session with these settings.

        None where something else may decide how Spark starts, or PySpark is in use; and at a first start: a JVM that
        was not needed would write an archive of too few classes.
        """
        settings = settings_of(given)
        if (
            "pyspark" in sys.modules
            or any(name in os.environ for name in _ELSEWHERE)
            or not _is_local(settings.get("spark.master", "local"))
            or _AT_EXIT in settings[JAVA_OPTIONS]
        ):
            return None
        prepare_environment()
        try:
            return cls(settings, dict(os.environ))
        except OSError:
            return None  # the session says what is wrong

    def note_environment(self) -> None:
        """Takes the environment of now for that of the JVM: libraries have set what they set in the workers, too."""
        self._environment = dict(os.environ)

    def fits(self, settings: Mapping[str, str]) -> bool:
        """Whether a JVM that is started now, for a session with these settings, would be the same."""
        return (
            self.process.poll() is None
            and _is_local(settings.get("spark.master", "local"))
            and _at_start(settings) == _at_start(self._settings)
            and dict(os.environ) == self._environment
        )

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """In this block PySpark connects to it instead of starting one, unless it has ended."""
        self._is_adopted = True
        while self.process.poll() is None and not self._file.exists():
            time.sleep(0.02)
        try:
            data = self._file.read_bytes()  # PySpark's: the port, the length of the secret, the secret
        except FileNotFoundError:
            data = b""
        found = {
            "PYSPARK_GATEWAY_PORT": str(int.from_bytes(data[:4], "big")),
            "PYSPARK_GATEWAY_SECRET": data[8:].decode(),
        }
        os.environ.update(found if data else {})
        try:
            yield
        finally:
            for name in found:
                os.environ.pop(name, None)
            shutil.rmtree(self._folder, ignore_errors=True)

    def end(self) -> None:
        """Ends a JVM that was not adopted."""
        if self._is_adopted:
            return
        self.process.kill()
        self.process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


def prepare_environment() -> None:
    """Sets what Spark's own script and the workers take from the environment."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _at_start(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if not name.startswith(_LATER)}


def _ignore_interrupts() -> None:
    """Ctrl-C is for Python, as with a JVM that PySpark starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
