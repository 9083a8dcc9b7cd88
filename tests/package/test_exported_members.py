"""The public surface: sorted, complete, and light to import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import crossstream as cs
from crossstream import serdes, testing


def test_names_are_sorted_and_unique():
    assert sorted(set(cs.__all__)) == cs.__all__


@pytest.mark.parametrize("name", cs.__all__)
def test_every_name_is_there(name):
    assert getattr(cs, name) is not None
    assert name in dir(cs)


@pytest.mark.parametrize("name", testing.__all__)
def test_what_tests_are_written_with_is_public(name):
    """Also the classes that are not made by name, for annotations."""
    assert getattr(cs, name) is getattr(testing, name)


def test_nothing_else_is_public():
    values = {name for name, value in vars(cs).items() if not name.startswith("_")}
    modules = {name for name in values if type(getattr(cs, name)).__name__ == "module"}
    assert values - modules - set(cs.__all__) - {"annotations", "TYPE_CHECKING", "Any"} == set()


def test_nothing_else_is_listed():
    assert dir(cs) == cs.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'GlobalKTabel'"):
        cs.GlobalKTabel  # noqa: B018


def test_an_unknown_serde_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'crossstream.serdes' has no attribute 'jsn'$"):
        serdes.jsn  # noqa: B018


def test_importing_loads_neither_pyspark_nor_a_kafka_client():
    program = (
        "import sys, crossstream; "
        "heavy = {'pyspark', 'confluent_kafka', 'grpc'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(heavy)) or None)"
    )
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=there, check=False
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("name", cs.__all__)
def test_public_things_say_what_they_do(name):
    value = getattr(cs, name)
    if isinstance(value, type):
        assert value.__doc__
        methods = [method for key, method in vars(value).items() if callable(method) and key[0] != "_"]
        assert all(method.__doc__ for method in methods)
