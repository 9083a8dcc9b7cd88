"""Sessions with the settings that the engine needs: made and shared, or passed in and checked."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.jvm import EarlyJvm, archive_of_classes, prepare_environment, settings_of
from crossstream.machine import INSTALL, JAVA_VERSION, java_command, no_java, noted_version
from crossstream.spark.errors import check_jvm, is_gone, is_stopped, jvm_ended

_REPORTED_BY_ERRORS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
"""Loggers of what a failed task raised, in some eighty lines: the error of the batch has it all, as its cause."""


def has_session() -> bool:
    return SparkContext._active_spark_context is not None


def is_running(context: SparkContext) -> bool:
    """Whether there is something left to stop or to free."""
    return not is_stopped(context) and not is_gone(context)


def found_session(settings: Mapping[str, Any]) -> SparkSession:
    """The session of this process; one beside it where ``settings`` ask for others than it has.

    What else runs in it keeps its settings. Those that a running context cannot change any more are left out.
    """
    session = SparkSession.builder.getOrCreate()
    check_session(session)
    asked = {name: str(value) for name, value in settings.items() if session.conf.isModifiable(name)}
    if all(session.conf.get(name, None) == value for name, value in asked.items()):
        return session
    beside = session.newSession()
    for name, value in asked.items():
        beside.conf.set(name, value)
    return beside


def make_session(
    application_id: str, settings: Mapping[str, Any], early: EarlyJvm | None = None
) -> SparkSession:
    """A session of our own, its Python workers started; ``settings`` of the user win.

    ``early``: a JVM that was started for it, and is used if it fits.
    Raises `ConfigError` CS-230: no Java that Spark runs on, or Spark does not start.
    """
    check_java()
    prepare_environment()
    builder = SparkSession.builder.appName(application_id)
    if "spark.master" not in settings and "SPARK_MASTER" not in os.environ:
        builder = builder.master("local[*]")
    merged = settings_of(settings)
    if early is not None and not early.fits(merged):
        early.end()
        early = None
    try:
        with nullcontext() if early is None else early.adopted():
            session = builder.config(map=cast(dict[str, Any], merged)).getOrCreate()
        if early is not None:
            SparkContext._gateway.proc = early.process  # type: ignore[union-attr]  # the JVM ends with its input
        if "spark.log.level" not in settings:
            quiet(session.sparkContext)
        warm_up(session.sparkContext)
        return session
    except Exception as error:
        if SparkContext._gateway is None and (archive := archive_of_classes()) is not None:
            archive.unlink(missing_ok=True)  # the JVM did not start: the archive may be damaged
        if SparkContext._active_spark_context is not None:
            with suppress(OSError, Py4JError):  # its JVM may be what has ended
                SparkContext._active_spark_context.stop()
        step = "run `crossstream doctor`: it checks Java, PySpark and the workers' Python"
        if "spark.master" in settings:
            step = f"check spark.master, and {step}"
        where = {"spark.master": settings.get("spark.master")}
        raise _refusal(f"Spark did not start: {_reason(error)}", step, **where) from error


def check_remote(settings: Mapping[str, Any]) -> None:
    """Raises `ConfigError` CS-232 if the settings or the environment ask for a Spark Connect session."""
    mode, master = str(settings.get("spark.api.mode", "")), str(settings.get("spark.master", ""))
    wanted = {
        "spark.remote": "spark.remote" in settings,
        "spark.api.mode": mode.lower() == "connect",
        "spark.master": master.startswith("sc://"),
        "SPARK_REMOTE": "SPARK_REMOTE" in os.environ,
        "SPARK_API_MODE": not mode and os.environ.get("SPARK_API_MODE", "").lower() == "connect",
        "SPARK_CONNECT_MODE_ENABLED": "SPARK_CONNECT_MODE_ENABLED" in os.environ,
    }
    name = next((name for name, is_set in wanted.items() if is_set), None)
    if name is not None:
        kind = "setting" if name.startswith("spark.") else "environment variable"
        what = f"the {kind} {name} asks for a Spark Connect session, which has no RDDs"
        step = f"unset {name}; spark={{'spark.master': …}} names the cluster"
        raise refuse("CS-232", what, step, **{kind: f"{name}={settings.get(name, os.environ.get(name))}"})


def check_java() -> None:
    """Raises `ConfigError` CS-230 if Spark would not find a Java to start on, or one that is too old.

    Not where another program has started the JVM, nor where Spark's own settings may name the Java.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ or _has_environment_file():
        return
    command = java_command()
    version = None if command is None else noted_version(command)
    if command is None or (version is not None and version < JAVA_VERSION):
        old = f"{command} is Java {version}; Spark needs {JAVA_VERSION} or later"
        step = f"{INSTALL}; then let JAVA_HOME point to it, or unset that"
        raise _refusal(no_java() if command is None else old, step, JAVA_HOME=os.environ.get("JAVA_HOME"))


def _has_environment_file() -> bool:
    """Whether Spark has a script that sets its environment, which may set JAVA_HOME."""
    home = os.environ.get("SPARK_HOME")
    folders = [os.environ.get("SPARK_CONF_DIR"), home and os.path.join(home, "conf")]
    return any(folder and os.path.isfile(os.path.join(folder, "spark-env.sh")) for folder in folders)


def _reason(error: Exception) -> str:
    """The first line of what Python says, or Java where that was called."""
    lines = str(error).splitlines() or [type(error).__name__]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


def quiet(context: SparkContext) -> None:
    """Spark's driver does not log what errors report."""
    assert context._jvm is not None
    logging = context._jvm.org.apache.logging.log4j
    with suppress(TypeError):  # another library logs: there is no such class
        for name in _REPORTED_BY_ERRORS:
            logging.core.config.Configurator.setLevel(name, logging.Level.OFF)


def warm_up(context: SparkContext) -> None:
    """Runs a job of nothing on the way a batch goes.

    It forks the Python workers and loads what the JVM needs for one (decision 0013): seconds that the first batch
    would take longer.
    """
    from crossstream.spark.worker import send_nothing

    tasks = max(1, context.defaultParallelism)
    blocks = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(send_nothing)
    blocks.partitionBy(tasks, abs).mapPartitionsWithIndex(send_nothing).collect()


def check_session(spark: Any) -> None:
    """Refuses a session that the engine cannot run in."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if not (4, 0) <= version < (5, 0):
        raise _refusal(f"PySpark {pyspark.__version__} is not supported", "install pyspark>=4.0,<5")
    if not hasattr(spark, "_jsparkSession"):
        raise _no_session(spark)
    check_running(spark.sparkContext)


def _no_session(spark: object) -> CrossStreamError:
    kind, step = type(spark), "pass a classic session, or spark=None and let crossstream make one"
    what = f"a {kind.__name__} is not a Spark session"
    if kind.__module__.startswith("pyspark.sql.connect"):
        what = "this is a Spark Connect session, which has no RDDs"
    elif isinstance(spark, str):
        step = f'the master is a setting: StreamsConfig(spark={{"spark.master": "{spark}"}})'
    return refuse("CS-232", what, step, **caller_location())


def check_running(context: SparkContext) -> None:
    """Raises `ConfigError` CS-232 if the session has been stopped, `ProcessingError` CS-590 if its JVM has ended.

    Batches fail already while another thread is stopping the session: only the JVM knows of that.
    """
    java = context._jsc
    try:
        stopped = java is None or java.sc().isStopped()
    except (OSError, Py4JError) as error:
        raise jvm_ended() from error
    if stopped:
        step = "stop the application before the session; make a new SparkStreams to continue"
        raise refuse("CS-232", "the Spark session that the application uses has been stopped", step)


class SharedSession:
    """Counts the applications that use the session made here. May be called from any thread.

    ``early``: a JVM for the first session.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: SparkContext | None = None
        self._users = 0
        self.early: EarlyJvm | None = None

    def use(self, application_id: str, settings: Mapping[str, Any]) -> SparkSession:
        """A session on the context of this process, made if there is none; to be given to `release` once."""
        check_remote(settings)
        with self._lock:
            check_jvm()
            if has_session():
                session = found_session(settings)
            else:
                check_settings(settings)
                early, self.early = self.early, None
                session = make_session(application_id, settings, early)
                self._made, self._users = session.sparkContext, 0
            if session.sparkContext is self._made:
                self._users += 1
            return session

    def release(self, session: SparkSession) -> None:
        """Ends one use; stops the session after the last, if it was made here and still runs."""
        with self._lock:
            if session.sparkContext is not self._made:
                return
            self._users -= 1
            if not self._users:
                self._made = None
                if is_running(session.sparkContext):
                    session.stop()

    def leave(self, session: SparkSession) -> None:
        """The user has passed the session to an application: from now on it is not stopped here."""
        with self._lock:
            if session.sparkContext is self._made:
                self._made = None


SHARED = SharedSession()
"""The one of this process."""


@dataclass(slots=True)
class SessionUse:
    """The session of one application: the one that was ``given``, or a use of the shared one."""

    application_id: str
    settings: Mapping[str, Any]
    given: SparkSession | None
    _session: SparkSession | None = None

    def open(self) -> SparkSession:
        if self._session is None:
            self._session = self.given or SHARED.use(self.application_id, self.settings)
        check_running(self._session.sparkContext)
        return self._session

    def release(self) -> None:
        session, self._session = self._session, None
        if session is not None and self.given is None:
            SHARED.release(session)

    def has_lost_jvm(self) -> bool:
        context = None if self._session is None else self._session.sparkContext
        return context is not None and not is_stopped(context) and is_gone(context)


# -- what Spark would refuse only after seconds, or never: checked before it starts

_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.*\]|yarn|[a-z0-9+.-]+://.+")
_SPARK = re.compile(r"spark://([^:/,]+:\d+)(,[^:/,]+:\d+)*")
_MEMORY = re.compile(r"(\d+)([kmgtp]?)b?", re.IGNORECASE)
_FACTORS = {"": 20, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
"""Powers of two; a number without a unit is MiB."""

LEAST_MEMORY = 450 << 20
"""With a smaller heap Spark's driver does not start."""
MASTER_SECONDS = 1.0
"""How long a master may take to accept a connection. A second try waits longer."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises `ConfigError` CS-230 for a master that does not answer, and for memory or a Python that Spark refuses."""
    master = settings.get("spark.master")
    if master is not None:
        _check_master(str(master))
    for name in ("spark.driver.memory", "spark.executor.memory"):
        if name in settings:
            _check_memory(name, str(settings[name]))
    if master is None or str(master).startswith("local"):
        for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
            if name in settings:
                _check_python(name, str(settings[name]))


def _check_master(master: str) -> None:
    if _MASTER.fullmatch(master) is None or (master.startswith("spark://") and not _SPARK.fullmatch(master)):
        raise _refusal(
            f"spark.master={master!r} is not a master",
            'write "local[*]", "spark://host:7077", "yarn" or "k8s://https://host:6443"',
        )
    if not master.startswith("spark://"):
        return
    hosts = master.removeprefix("spark://").split(",")
    with ThreadPoolExecutor(len(hosts)) as pool:
        faults = dict(zip(hosts, pool.map(_fault, hosts), strict=True))
    if all(faults.values()):
        said = ", ".join(f"{host}: {fault}" for host, fault in faults.items())
        raise _refusal(
            f"no Spark master answers at {master} ({said})",
            "start the master, or correct spark.master; without it Spark runs in this process",
        )


def _fault(address: str) -> str | None:
    """Why no connection is made; None: there is one."""
    host, _, port = address.rpartition(":")
    for seconds in (MASTER_SECONDS, 3 * MASTER_SECONDS):
        try:
            socket.create_connection((host, int(port)), seconds).close()
            return None
        except TimeoutError:
            continue
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)
    return "no answer"


def _check_memory(name: str, text: str) -> None:
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise _refusal(f"{name}={text!r} is not an amount of memory", f'write {name}="2g" or "800m"')
    size = int(found[1]) << _FACTORS[found[2].lower()]
    if size < LEAST_MEMORY:
        raise _refusal(
            f"{name}={text!r} is too little: Spark needs {LEAST_MEMORY >> 20} MiB to start",
            f'write {name}="2g", or leave it out',
        )


def _check_python(name: str, command: str) -> None:
    """Refuses a program that is missing, and a Python of another version: it could not read our functions."""
    if command == sys.executable:
        return
    path = shutil.which(command)
    if path is None:
        raise _refusal(f"{name}={command!r} is not a program on this machine", f"leave {name} out")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return  # Spark says what is wrong with it
    version, own = done.stdout.strip(), f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != own:
        other = f"Python {version}" if version else "not a Python that runs"
        raise _refusal(
            f"{name}={command!r} is {other}, and this process is Python {own}",
            f"leave {name} out: the workers run {sys.executable}",
        )


def _refusal(what: str, step: str, **where: object) -> CrossStreamError:
    return refuse("CS-230", what, step, **where)
