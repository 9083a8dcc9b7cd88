"""Errors across Spark: what a worker raised, raised again in the driver.

Spark forwards nothing but text, and that text also quotes keys, and what functions of the user raised. So an error of
ours crosses as plain data, behind a token of the run that no record can know: nothing else in the text is read.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from crossstream import errors
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, plain_place, type_and_text, utf8_safe

_MARK = "crossstream-error:"
_KINDS = MappingProxyType(
    {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CrossStreamError)
    }
)
"""The classes that an error may have on the other side, by their names."""


class WorkerError(RuntimeError):
    """Carries an error of ours through Spark, which forwards nothing but text."""


def with_packed_errors(make: Callable[[], Iterable[Any]], token: str) -> Iterator[Any]:
    """The items of a task; an error of ours is packed so that `unpacked` finds it in Spark's message.

    ``token``: of the run. A worker that cannot write its traceback as UTF-8 sends none, and the JVM waits
    for it forever. So where the text of an error in the chain has no bytes, the chain is left out.
    """
    try:
        yield from make()
    except CrossStreamError as error:
        plain = _plain(error)
        packed = WorkerError(utf8_safe(f"{plain}\n{_MARK}{token}:{_packed(plain)}:"))
        raise packed from (error if _is_writable(error) else None)
    except Exception as error:
        if _is_writable(error):
            raise
        raise WorkerError(type_and_text(error)) from None


def _packed(error: CrossStreamError) -> str:
    said = [type(error).__name__, error.what, error.code, error.where, error.next]
    return b64encode(json.dumps(said).encode()).decode()


def _plain(error: CrossStreamError) -> CrossStreamError:
    """The error as plain data, of one of our own classes."""
    kind = next(one for one in type(error).__mro__ if one in _KINDS.values())
    made: CrossStreamError = kind(
        str(error.what),
        code=str(error.code),
        where=plain_place(error.where),
        next=error.next and str(error.next),
    )
    return made


def _is_writable(error: BaseException) -> bool:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return all(line == utf8_safe(line) for line in lines)


def unpacked(error: Exception, token: str) -> CrossStreamError:
    """What a worker of the run with this ``token`` raised.

    For anything else, imitations among it, a `ProcessingError` CS-590 with the heart of Spark's message.
    """
    if isinstance(error, CrossStreamError):
        return error
    text = str(error)
    for found in re.finditer(f"{_MARK}{re.escape(token)}:([A-Za-z0-9+/=]+):", text):
        try:
            kind, what, code, where, step = json.loads(b64decode(found[1], validate=True))
        except ValueError:  # cut short on its way
            continue
        return _KINDS[kind](what, code=code, where=where, next=step)
    said = heart(error)
    return refuse("CS-590", f"Spark could not run a batch: {said}", _next(said))


def _next(said: str) -> str:
    if said.startswith("ModuleNotFoundError"):
        return (
            "install the module where the workers run, or send it: spark={'spark.submit.pyFiles': 'module.py'}. "
            "A session of yours runs them with PYSPARK_PYTHON, by default the first python3 of the PATH: "
            f"set it, before the session is made, to {sys.executable}"
        )
    if "Python worker exited" in said:
        return (
            "see the system's log: was it killed for lack of memory? Then max_records_per_batch helps. "
            "Otherwise a library that a function calls has crashed, or the function ended the process"
        )
    return "see the cause below and Spark's log; `crossstream doctor` checks the installation"


def heart(error: Exception) -> str:
    """What Python raised, or else the innermost of what Java says in its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if re.match(r"[A-Za-z_.]+(Error|Exception|Exit)\b.*:", line) and "Py4J" not in line:
            return line[:500]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        said = lines[1].removeprefix(": ")
        inner = [found.start() for found in re.finditer(r"\w+(Error|Exception): ", said)]
        return said[inner[-1] if inner else 0 :][:500]
    return (lines or ["no message"])[0][:500]


_LOST = re.compile(
    r"Python worker exited|Python worker failed to connect back|"
    r"reading the port number|ExecutorLostFailure|ExecutorDeadException|"
    r"MetadataFetchFailed|FetchFailed|java\.io\.EOFException|java\.net\.SocketException|"
    r"java\.nio\.channels\.ClosedChannelException|java\.io\.IOException: (Broken pipe|Connection reset)"
)
"""What Spark says where a worker, its daemon or an executor has ended under a task, and nothing else was wrong."""


def is_lost_worker(error: Exception, token: str) -> bool:
    """Whether a batch failed because a process that ran it has ended. The batch itself may be in order."""
    text = str(error)
    raised = "org.apache.spark.api.python.PythonException" in text
    return unpacked(error, token).code == "CS-590" and not raised and _LOST.search(text) is not None


_TEMPORARY = ("CS-604", "CS-651", "CS-707", "CS-740")
"""Codes of errors that another start may not meet: brokers or an object store away, another instance that ends."""


def is_temporary(error: CrossStreamError) -> bool:
    """Whether another start may cure it. What a record, a function or the topology causes comes again."""
    if error.code != "CS-590":
        return error.code in _TEMPORARY
    texts = f"{error.what}\n{error.__cause__ or ''}"
    if "org.apache.spark.api.python.PythonException" in texts:
        return False
    return "JVM" in error.what or "OutOfMemoryError" in texts or _LOST.search(texts) is not None


def is_stopped(context: SparkContext) -> bool:
    """Whether it has been stopped, through any session of it."""
    return context._jsc is None


def is_gone(context: SparkContext) -> bool:
    """Whether the JVM of a context that has not been stopped has ended."""
    try:
        context._jsc.version()
    except (OSError, Py4JError):
        return True
    return False


def check_jvm() -> None:
    """Raises `ProcessingError` CS-590 if the JVM that PySpark knows has ended: a process has one."""
    gateway = SparkContext._gateway
    if gateway is not None:
        try:
            gateway.jvm.System.nanoTime()
        except (OSError, Py4JError):
            raise jvm_ended() from None


def calling_socket() -> socket.socket | None:
    """What the thread of the JVM that has called this one is connected by; None if none has."""
    client = getattr(SparkContext._gateway, "_gateway_client", None)
    connection = getattr(client, "get_thread_connection", lambda: None)()  # not without PYSPARK_PIN_THREAD
    if connection is None or connection.initiated_from_client:
        return None
    called_by: socket.socket | None = connection.socket
    return called_by


def hang_up(called_by: socket.socket) -> None:
    """Ends the thread that took the calls of a thread of the JVM that has ended: py4j keeps it, and the socket."""
    with suppress(OSError):
        called_by.shutdown(socket.SHUT_RDWR)


def jvm_ended() -> CrossStreamError:
    step = (
        "see Spark's log and the system's for why: out of memory (spark.driver.memory), killed? Then start the "
        "process again; what was committed stays"
    )
    return refuse("CS-590", "Spark's JVM, in which the application ran, has ended", step)
