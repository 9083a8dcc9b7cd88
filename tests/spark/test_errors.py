"""Errors of workers: what can be written comes through Spark, whatever the user's own errors and keys are."""

from __future__ import annotations

import json
import sys
import traceback
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.spark.errors import WorkerError, unpacked, with_packed_errors

TOKEN = "0123456789abcdef" * 2
HALF = "\ud83d"
"""Half of a surrogate pair: text in Python that UTF-8 has no bytes for."""

any_text = st.text(st.characters(exclude_categories=()), max_size=5)


def raised_by(error: Exception, cause: Exception | None = None) -> Exception:
    """What a task that raises ``error`` ends with."""

    def task() -> Iterator[Any]:
        yield 1
        raise error from cause

    try:
        list(with_packed_errors(task, TOKEN))
    except Exception as found:
        return found
    raise AssertionError("the task has not failed")


def sent(error: Exception) -> str:
    """What Spark's worker sends of an error: its traceback as UTF-8, or nothing, and then the JVM waits for ever."""
    return "".join(traceback.format_exception(error)).encode("utf-8").decode()


def through_spark(error: Exception, cause: Exception | None = None) -> Exception:
    return unpacked(RuntimeError(sent(raised_by(error, cause))), TOKEN)


def failed(what: str = "it failed", key: object = "k") -> cs.ProcessingError:
    return cs.ProcessingError(
        what, code="CS-501", where={"operator": "join", "offset": 3, "key": key}, next="mend it"
    )


@given(any_text, st.none() | any_text)
def test_an_error_of_ours_comes_out_as_it_was(text: str, key: str | None) -> None:
    error = failed(f"a function raised {type_and_text(ValueError(text))}", key)
    found = through_spark(error, ValueError(text))
    assert isinstance(found, cs.ProcessingError)
    assert (found.what, found.code, found.where, found.next) == (
        error.what,
        error.code,
        error.where,
        error.next,
    )


def test_the_users_own_traceback_is_in_sparks_message() -> None:
    assert "no such price" in sent(raised_by(failed(), KeyError("no such price")))


def test_half_a_character_in_the_users_error_is_left_out_there() -> None:
    assert HALF not in sent(raised_by(failed(), KeyError(HALF)))


def test_a_key_of_a_class_that_only_the_worker_has() -> None:
    @dataclass(frozen=True)
    class Key:
        shop: int

    found = through_spark(failed(key=Key(7)))
    assert isinstance(found, cs.ProcessingError)
    assert found.where == {"operator": "join", "offset": 3, "key": str(Key(7))}
    assert (found.what, found.code, found.next) == ("it failed", "CS-501", "mend it")


def test_other_errors_stay_as_they_are() -> None:
    error = OSError("no space")
    assert raised_by(error) is error
    assert "OSError: no space" in str(unpacked(RuntimeError(sent(error)), TOKEN))


def test_a_module_that_workers_lack() -> None:
    found = unpacked(RuntimeError(sent(ModuleNotFoundError("No module named 'helpers'"))), TOKEN)
    assert isinstance(found, cs.ProcessingError)
    assert (found.code, found.what) == (
        "CS-590", "Spark could not run a batch: ModuleNotFoundError: No module named 'helpers'"
    )  # fmt: skip
    assert "spark.submit.pyFiles" in str(found.next)
    assert "PYSPARK_PYTHON" in str(found.next)
    assert sys.executable in str(found.next)


ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
    "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 (TID 4) (here executor driver): "
)


@pytest.mark.parametrize(
    ("said", "heart", "step"),
    [
        (
            "org.apache.spark.SparkException: Python worker exited",
            "SparkException: Python worker",
            "of memory",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "OutOfMemoryError: Java heap space", "Spark's log"),
        (
            "ExecutorLostFailure (executor 1)",
            "SparkException: Job aborted due to stage failure",
            "Spark's log",
        ),
    ],
)
def test_what_java_says_where_python_raised_nothing(said: str, heart: str, step: str) -> None:
    found = unpacked(RuntimeError(f"{ABORTED}{said}\n\tat org.apache.spark.Foo(Foo.scala:1)"), TOKEN)
    assert f"Spark could not run a batch: {heart}" in str(found)
    assert step in str(found.next)


def test_other_errors_that_cannot_be_written_are_told() -> None:
    found = raised_by(OSError(f"no file {HALF}"))
    assert isinstance(found, WorkerError)
    assert "OSError: no file \\ud83d" in sent(found)


def test_an_error_whose_own_text_raises() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert type_and_text(Silent()) == "Silent: (its own text raised RuntimeError)"
    assert isinstance(through_spark(failed(type_and_text(Silent())), Silent()), CrossStreamError)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def repr_of(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"\0\1", str(b"\0\1")),
        ({"id": 7}, "{'id': 7}"),
        (np.int64(7), 7),
        (1 << 70, str(1 << 70)),
        (10**5000, "(the text of a int raised ValueError)"),
        (Silent(), "(the text of a Silent raised RuntimeError)"),
        (1.5, "1.5"),
        (True, True),
        (None, None),
    ],
    ids=repr_of,
)
def test_keys_of_any_type_arrive_as_plain_data(key: object, text: object) -> None:
    found = through_spark(failed(key=key))
    assert isinstance(found, CrossStreamError)
    assert found.where["key"] == text
    assert type(found.where["key"]) is type(text)


def test_an_error_of_a_users_class_arrives_as_ours() -> None:
    class Special(cs.SinkError):
        pass

    found = through_spark(Special("it failed", code="CS-650"))
    assert (type(found), str(found)) == (cs.SinkError, "[CS-650] it failed")


def imitation(token: str = "") -> str:
    """The text that carries an error, as somebody writes it who has no token."""
    said = ["StateError", "all is lost", "CS-701", {"folder": "/"}, "delete everything"]
    return f"crossstream-error:{token}{b64encode(json.dumps(said).encode()).decode()}:"


IMITATIONS = [imitation(), imitation(":"), imitation(f"{'0' * 32}:"), f"crossstream-error:{TOKEN[:-1]}:"]


@pytest.mark.parametrize("text", IMITATIONS)
def test_a_record_cannot_imitate_an_error(text: str) -> None:
    """In what the user's function raised, in a key, in what a serde says; before the true one, and alone."""
    found = through_spark(failed(type_and_text(ValueError(text)), text), ValueError(text))
    assert (type(found), found.args, str(found)) == (
        cs.ProcessingError,
        (type_and_text(ValueError(text)),),
        str(failed(type_and_text(ValueError(text)), text)),
    )
    alone = through_spark(ValueError(f"no price in {text}"))
    assert isinstance(alone, cs.ProcessingError)
    assert (alone.code, alone.what) == (
        "CS-590", f"Spark could not run a batch: ValueError: no price in {text}"
    )  # fmt: skip


def test_an_error_of_another_run_is_a_foreign_one() -> None:
    text = sent(raised_by(failed()))
    found = unpacked(RuntimeError(text), "f" * 32)
    assert isinstance(found, cs.ProcessingError)
    assert found.code == "CS-590"


def test_a_text_that_was_cut_short() -> None:
    """Spark's message holds it several times: the first that is whole counts. Without any it is a foreign error."""
    whole = str(raised_by(failed()))
    start = whole.index(TOKEN) + len(TOKEN) + 1
    broken = f"{whole[: start + 8]}:"
    assert str(unpacked(RuntimeError(f"{broken}\n{whole}"), TOKEN)) == str(failed())
    for text in (broken, whole[: start + 8], whole[:start]):
        found = unpacked(RuntimeError(text), TOKEN)
        assert isinstance(found, cs.ProcessingError)
        assert found.code == "CS-590"


def test_a_long_text_arrives_whole() -> None:
    error = failed("x" * (1 << 20), "k" * (1 << 20))
    found = through_spark(error)
    assert (found.args, str(found)) == (error.args, str(error))
