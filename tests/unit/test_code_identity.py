"""What tells whether code has changed: the same in every process, and another one for whatever it may do otherwise."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.engine.code_identity import code_identity
from crossstream.topology.plan import Plan

FILES = {
    "app.py": """
import dataclasses, enum, functools, itertools, threading
import msgspec, polars as pl
import crossstream as cs
from crossstream import serdes
from crossstream.engine.code_identity import code_identity
from crossstream.topology.plan import Plan
import helpers
from helpers import priced

class Kind(enum.Enum):
    A = "a"

@dataclasses.dataclass
class Row:
    n: int
    def total(self): return self.n * 2

class Point(msgspec.Struct):
    x: int = 3

NAMES, RATES, LOCK, COUNT = {"alpha", "beta", "gamma"}, {"EUR": 1.5}, threading.Lock(), itertools.count()

@functools.cache
def rate(currency): return RATES[currency]

def build(limit):
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=serdes.string(), value=serdes.json()))
    def known(value):
        with LOCK:
            return value["n"] in {"a", "b", "c"} or value["n"] in NAMES or next(COUNT) > limit
    (
        stream.filter(known)
        .map_values(lambda value: Row(value["n"]).total() + Point().x + helpers.deep.fee(rate("EUR")))
        .map_values(priced)
        .filter(lambda value: value != Kind.A)
        .to("out", cs.Produced(key=serdes.string(), value=serdes.json()))
    )
    typed = builder.stream("typed", cs.Consumed(key=serdes.string(), value=serdes.json({"n": pl.Int64})))
    typed.map_values(pl.col("n") + 1).to("more", cs.Produced(key=serdes.string(), value=serdes.json()))
    return builder.build()

print(code_identity(Plan.of(build(10)).shipped()).hex())
""",
    "helpers/__init__.py": "from helpers import deep\nfrom helpers.prices import priced\n",
    "helpers/prices.py": "from helpers.more import twice\n\ndef priced(value):\n    return twice(value)\n",
    "helpers/more.py": "def twice(value):\n    return value * 2\n",
    "helpers/deep.py": "FEE = 3\n\ndef fee(rate):\n    return FEE * rate\n",
}
EDITS = {
    "a captured value": ("app.py", "build(10)", "build(11)"),
    "a global value": ("app.py", "1.5", "1.6"),
    "a set": ("app.py", '"gamma"', '"delta"'),
    "a constant": ("app.py", '"b", "c"}', '"b", "d"}'),
    "a method": ("app.py", "self.n * 2", "self.n * 3"),
    "a default": ("app.py", "x: int = 3", "x: int = 4"),
    "an expression": ("app.py", 'pl.col("n") + 1', 'pl.col("n") + 2'),
    "an operator": ("app.py", ".filter(lambda value: value != Kind.A)", ""),
    "a function of an imported one": ("helpers/more.py", "value * 2", "value * 3"),
    "a value of a module": ("helpers/deep.py", "FEE = 3", "FEE = 4"),
}


def told(folder: Path, seed: str = "1", **changed: str) -> str:
    for name, text in (FILES | changed).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environment = {
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    ran = subprocess.run(
        [sys.executable, "app.py"], cwd=folder, env=os.environ | environment, check=True, capture_output=True
    )
    return ran.stdout.decode().strip()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    return told(tmp_path_factory.mktemp("first"))


def test_it_is_the_same_in_every_process_and_place(first: str, tmp_path: Path) -> None:
    assert len(first) == 32
    assert told(tmp_path, "2") == first


@pytest.mark.parametrize("edit", EDITS)
def test_what_changed_tells(first: str, tmp_path: Path, edit: str) -> None:
    name, old, new = EDITS[edit]
    assert FILES[name].count(old) == 1
    found = told(tmp_path, **{name: FILES[name].replace(old, new)})
    assert len(found) == 32
    assert found != first


def mapped(function: Callable[[Any], Any] | pl.Expr) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=serdes.string(), value=serdes.json()))
    stream.map_values(function).to("out", cs.Produced(key=serdes.string(), value=serdes.json()))
    return builder.build()


def identity(function: Callable[[Any], Any] | pl.Expr) -> bytes:
    return code_identity(Plan.of(mapped(function)).shipped())


def adding(value: int) -> Callable[[int], int]:
    return lambda number: number + value


def test_functions_that_hold_others() -> None:
    """Wrapped, bound to some arguments, or methods: by what they hold."""
    assert identity(adding(1)) == identity(adding(1)) != identity(adding(2))
    for hold in (functools.cache, functools.partial, functools.wraps(str)):
        assert identity(hold(adding(1))) == identity(hold(adding(1))) != identity(hold(adding(2)))


def recursive(number: int) -> int:
    return number and recursive(number - 1)


def test_functions_that_call_themselves() -> None:
    assert len(identity(recursive)) == 16


def lazily(value: Any) -> Any:
    from . import refusing  # noqa: TID252  # what it is about

    return refusing, value


def of_a_module_that_is_not_loaded(value: Any) -> Any:
    import not_loaded_yet  # type: ignore[import-not-found]

    return not_loaded_yet, value


@pytest.mark.parametrize(
    "function",
    [lazily, of_a_module_that_is_not_loaded, pl.col("n").map_elements(recursive, return_dtype=pl.Int64)],
    ids=["relative import", "not loaded", "Python in Polars"],
)
def test_code_that_cannot_be_read_is_not_told(function: Any) -> None:
    assert code_identity(function) == b""


def test_what_cannot_be_sent_counts_by_its_class() -> None:
    assert (
        code_identity(threading.Lock()) == code_identity(threading.Lock()) != code_identity(threading.RLock())
    )


def test_too_many_objects_are_not_told() -> None:
    assert code_identity([(n,) for n in range(300_000)]) == b""
