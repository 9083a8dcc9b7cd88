"""The package tells type checkers that it has types (PEP 561), and has them for every public name."""

from __future__ import annotations

import importlib.resources
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
builder = cs.StreamsBuilder()
products = builder.table("products", cs.Consumed(key=TEXT, value=JSON))
shops = builder.table("shops", cs.Consumed(key=TEXT, value=JSON))


def offer(product: Any, shop: Any) -> dict[str, Any]:
    return {"name": product["name"], "shop": shop["name"]}


offers = products.join(shops, offer, foreign_key=lambda product: product["shop"])
offers.to_stream().to("offers", cs.Produced(key=TEXT, value=JSON))
changes, places = offers.to_stream(), builder.global_table("places", cs.Consumed(key=TEXT, value=JSON))
changes.join(changes, offer, cs.JoinWindows.of("1 s", "1 s"), stream_joined=cs.StreamJoined())
changes.left_join(shops, offer, cs.Joined()).left_join(shops, lambda left, right: [left, right])
changes.join(places, offer, key_selector=lambda key, value: key, named=cs.Named("placed"))
changes.outer_join(changes, offer, cs.JoinWindows.of("1 s"))
short = builder.table("short", key=int, value=list[str], store="short")
short.map_values(len, value=int, store="lengths").to("lengths", key=int, value=int)
products.join(shops, foreign_key="shop", on_merge=cs.prefixed("shop_"), store="named").to("named", value=dict)
products.join_many({"shop": (shops, "shop")}, store="many").to("many")
changes.join(changes, within="10 minutes").group_by("shop").windowed_by("1 hour").count(store="hours")
changes.left_join(changes, offer, before="1 minute", after="2 minutes", grace="1 s").to("pairs", value=dict)
with cs.TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("products", TEXT, JSON).pipe_input("p", {"name": "P"}, timestamp=1)
    records: list[cs.TestRecord] = driver.create_output_topic("offers", TEXT, JSON).read_records()
"""


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    there = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=there, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source distribution."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], ROOT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def checked(built: Path) -> Path:
    """An environment in which the wheel is installed, and nothing else; what mypy finds there it takes for others'."""
    pytest.importorskip("mypy")
    environment = built / "environment"
    made = run([sys.executable, "-m", "venv", "--without-pip", str(environment)], built)
    assert made.returncode == 0, made.stderr
    (packages,) = environment.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return environment


def mypy(environment: Path, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    python = environment / "bin" / "python"
    cache = environment / "cache"
    options = ["--strict", "--python-executable", str(python), "--cache-dir", str(cache)]
    return run([sys.executable, "-m", "mypy", *options, "program.py"], folder)


def test_the_marker_is_in_the_package() -> None:
    assert importlib.resources.files("crossstream").joinpath("py.typed").is_file()


def test_the_marker_is_in_what_is_published(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (source,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert "crossstream/py.typed" in archive.namelist()
    with tarfile.open(source) as archive:
        assert any(name.endswith("/src/crossstream/py.typed") for name in archive.getnames())


def test_a_program_of_a_user_is_checked(checked: Path, tmp_path: Path) -> None:
    found = mypy(checked, PROGRAM, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


SLIPS = [
    ("cs.GlobalKTabel", "attr-defined"),
    ("cs.importlib", "attr-defined"),
    ("cs.Materialized(stor='x')", "call-arg"),
    ("products.map_value(str)", "attr-defined"),
    ("cs.Named(5)", "arg-type"),
    ("cs.JoinWindows.of(5, grce=1)", "call-arg"),
    ("products.join(shops, offer, windows=cs.JoinWindows.of(5))", "call-arg"),
    ("changes.join(changes, offer)", "call-overload"),
    ("changes.join(shops, offer, cs.JoinWindows.of(5))", "call-overload"),
    ("changes.left_join(places, offer)", "call-overload"),
    ("changes.outer_join(changes, offer, stream_joined=cs.StreamJoined())", "call-overload"),
]
"""A line of a user, and what mypy says of it."""


def test_slips_of_a_user_are_found(checked: Path, tmp_path: Path) -> None:
    found = mypy(checked, PROGRAM + "".join(f"{line}\n" for line, _ in SLIPS), tmp_path)
    first = PROGRAM.count("\n") + 1
    errors = re.findall(r"^program\.py:(\d+): error: .* \[([a-z-]+)\]$", found.stdout, re.MULTILINE)
    wanted = [(str(first + number), code) for number, (_, code) in enumerate(SLIPS)]
    assert errors == wanted, found.stdout + found.stderr
