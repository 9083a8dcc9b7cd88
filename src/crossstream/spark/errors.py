"""Errors across Spark: what a worker raised, raised again in the driver as it was."""

from __future__ import annotations

import base64
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from crossstream.errors import CrossStreamError, ProcessingError, told, writable

_MARK = "crossstream-error:"
_FOUND = re.compile(_MARK + r"([A-Za-z0-9+/=]+):")


class WorkerError(RuntimeError):
    """Carries an error of ours through Spark, which passes on nothing but text."""


def carried(make: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """The items of a task; an error of ours is packed so that `unpacked` finds it in Spark's message.

    A worker that cannot write its traceback as UTF-8 sends none, and the JVM waits for it for ever. So where
    the text of an error in the chain has no bytes, the chain is left out.
    """
    try:
        yield from make()
    except CrossStreamError as error:
        data = base64.b64encode(_pickled(error)).decode()
        packed = WorkerError(writable(f"{error}\n{_MARK}{data}:"))
        raise packed from (error if _is_writable(error) else None)
    except Exception as error:
        if _is_writable(error):
            raise
        raise WorkerError(told(error)) from None


def _pickled(error: CrossStreamError) -> bytes:
    """With its place as text where that cannot be pickled: a key of a class that the user's own script defines."""
    try:
        return pickle.dumps(error)
    except Exception:
        where = {name: str(value) for name, value in error.where.items() if value is not None}
        return pickle.dumps(type(error)(error.what, code=error.code, where=where, next=error.next))


def _is_writable(error: BaseException) -> bool:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return all(line == writable(line) for line in lines)


def held(error: BaseException) -> Exception:
    """What a thread other than the main one failed with, for others to raise: sys.exit() would end it in silence."""
    if isinstance(error, Exception):
        return error
    return ProcessingError(
        f"a function that the application calls in a thread of its own raised {told(error)}",
        code="CS-593",
        next="call stop() where the application was started; in a function or a listener raise an error instead",
    )


def unpacked(error: Exception) -> CrossStreamError:
    """What a worker raised; for anything else a `ProcessingError` CS-590 with the heart of Spark's message."""
    if isinstance(error, CrossStreamError):
        return error
    text = str(error)
    found = _FOUND.search(text)
    if found is not None:
        ours = pickle.loads(base64.b64decode(found.group(1)))
        assert isinstance(ours, CrossStreamError)
        return ours
    heart = _heart(text)
    return ProcessingError(f"Spark could not run a batch: {heart}", code="CS-590", next=_next(heart))


def _next(heart: str) -> str:
    if heart.startswith("ModuleNotFoundError"):
        return (
            "install the module where the workers run, or send it: spark={'spark.submit.pyFiles': 'module.py'}. "
            "A session of yours runs them with PYSPARK_PYTHON, by default the first python3 of the PATH: "
            f"set it, before the session is made, to {sys.executable}"
        )
    if "Python worker exited" in heart:
        return (
            "see the system's log: was it killed for lack of memory? Then max_records_per_batch helps. "
            "Otherwise a library that a function calls has crashed, or the function ended the process"
        )
    return "see the cause below and Spark's log; `crossstream doctor` checks the installation"


def _heart(text: str) -> str:
    """What Python raised, or else the innermost of what Java says in its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if re.match(r"[A-Za-z_.]+(Error|Exception|Exit)\b.*:", line) and "Py4J" not in line:
            return line[:500]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        said = lines[1].removeprefix(": ")
        inner = [found.start() for found in re.finditer(r"\w+(Error|Exception): ", said)]
        return said[inner[-1] if inner else 0 :][:500]
    return (lines or ["no message"])[0][:500]
