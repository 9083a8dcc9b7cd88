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
    (packages / "polars").mkdir()
    (packages / "polars" / "__init__.pyi").write_text(EXPRESSIONS)
    (packages / "polars" / "py.typed").touch()
    return environment


EXPRESSIONS = """
from typing import Any

class Expr:
    def __gt__(self, other: object) -> Expr: ...

def col(name: str) -> Expr: ...
def __getattr__(name: str) -> Any: ...
"""
"""What is needed of Polars, which takes mypy long."""


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
    ("products.join(shops, offer, windows=cs.JoinWindows.of(5))", "call-overload"),
    ("changes.join(changes, offer)", "arg-type"),
    ("changes.join(shops, offer, cs.JoinWindows.of(5))", "arg-type"),
    ("changes.left_join(places, offer)", "arg-type"),
    ("changes.outer_join(changes, offer, stream_joined=cs.StreamJoined())", "arg-type"),
]
"""A line of a user, and what mypy says of it."""


def test_slips_of_a_user_are_found(checked: Path, tmp_path: Path) -> None:
    found = mypy(checked, PROGRAM + "".join(f"{line}\n" for line, _ in SLIPS), tmp_path)
    first = PROGRAM.count("\n") + 1
    wanted = [(str(first + number), code) for number, (_, code) in enumerate(SLIPS)]
    assert errors_of(found) == wanted, found.stdout + found.stderr


def errors_of(found: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    """(line, code) of what mypy found first in each line: of one call it may find several faults."""
    errors = re.findall(r"^program\.py:(\d+): error: .* \[([a-z-]+)\]$", found.stdout, re.MULTILINE)
    return list(dict(reversed(errors)).items())[::-1]


TYPED = """
from dataclasses import dataclass
from typing import Any

import polars as pl

import crossstream as cs
from crossstream import serdes


@dataclass
class Order:
    customer: str
    amount: int


@dataclass
class Customer:
    name: str


def maybe(order: Order, customer: Customer | None) -> dict[str, Any]:
    return {"name": customer and customer.name}


def plain(table: cs.KTable, stream: cs.KStream) -> cs.KTable:
    return table.join(stream.to_table(), lambda left, right: left.x + right["y"])


builder = cs.StreamsBuilder()
orders = builder.table("orders", key=str, value=Order, store="orders")
customers = builder.table("customers", value=Customer)
stream = builder.stream("stream", value=Order)
loose = builder.stream("loose")
numbers = builder.global_table("numbers", key=int, value=str)

loose.filter(lambda value: value["x"] > 1).map_values(lambda value: value + 1).to("out", value=dict)
loose.left_join(builder.table("t"), lambda left, right: {**left, "x": right["x"]}).to("more", value=dict)
loose.group_by_key().aggregate(lambda: [], lambda seen, value: [*seen, value.x])
loose.map_values(str.upper).group_by_key().reduce(max)
by_customer = orders.group_by(lambda key, order: (order.customer, order.amount), key=str, value=int)
by_customer.reduce(lambda total, new: total + new, lambda total, old: total - old, store="totals")
orders.group_by("customer").agg(number=cs.agg.count())
orders.join(numbers, lambda order, text: text, foreign_key="amount")
orders.filter(pl.col("amount") > 1, cs.Named("dear"), cs.Materialized(store="dear"), store=None)
"""

TYPES = [
    ("orders", "KTable[str, Order]"),
    ("customers", "KTable[str, Customer]"),
    ("builder.table('a')", "KTable[Any, Any]"),
    ("builder.table('b', key=serdes.int64(), value=Order)", "KTable[Any, Any]"),
    ("builder.table('c', cs.Consumed(key=str, value=Order))", "KTable[Any, Any]"),
    ("builder.stream('d', key=int)", "KStream[int, Any]"),
    ("numbers", "GlobalKTable[int, str]"),
    ("orders.join(customers, lambda left, right: right.name, foreign_key='customer')", "KTable[str, str]"),
    (
        "orders.join(customers, lambda key, left, right: left.amount, foreign_key='customer')",
        "KTable[str, int]",
    ),
    ("orders.left_join(customers, maybe, foreign_key='customer')", "KTable[str, dict[str, Any]]"),
    ("orders.join(customers, foreign_key='customer', on_merge='keep-left')", "KTable[str, Any]"),
    ("orders.join(customers, pl.col('left'), foreign_key='customer', store='s')", "KTable[str, Any]"),
    ("orders.join(customers, cs.keyed(lambda key, *both: both), foreign_key='customer')", "KTable[str, Any]"),
    (
        "orders.filter(lambda order: order.amount > 1).filter_not(lambda key, order: key == 'x')",
        "KTable[str, Order]",
    ),
    ("orders.map_values(lambda order: order.amount, value=int)", "KTable[str, int]"),
    ("orders.to_stream()", "KStream[str, Order]"),
    ("orders.to_stream().select_key(lambda order: order.amount).to_table(key=int)", "KTable[int, Order]"),
    ("stream.map(lambda key, order: (order.amount, order))", "KStream[int, Order]"),
    ("stream.flat_map_values(lambda order: [order.amount])", "KStream[str, int]"),
    ("stream.join(customers, lambda order, customer: customer.name)", "KStream[str, str]"),
    ("stream.join(stream, lambda one, two: one.amount, within='1 hour')", "KStream[str, int]"),
    (
        "stream.outer_join(stream, lambda one, two: [one, two], cs.JoinWindows.of('1 s'))",
        "KStream[str, list[Order]]",
    ),
    ("stream.join(numbers, lambda order, text: text, key_selector='amount')", "KStream[str, str]"),
    ("stream.group_by(lambda order: order.amount, key=int).count()", "KTable[int, int]"),
    ("stream.group_by_key().reduce(lambda total, order: order)", "KTable[str, Order]"),
    ("stream.deduplicate('1 hour')", "KStream[str, Order]"),
    ("stream.repartition(key=str)", "KStream[str, Order]"),
    ("stream.map_values(lambda order: {'x': 1}).repartition(value=Order)", "KStream[str, Any]"),
    ("stream.map_values(lambda order: {'x': 1}).group_by_key(value=Order)", "GroupedKStream[str, Any]"),
    ("stream.process_values(object)", "KStream[Any, Any]"),
    (
        "stream.split().branch(lambda order: order.amount > 1).no_default_branch()",
        "dict[str, KStream[str, Order]]",
    ),
    ("stream.merge(stream)", "KStream[str, Order]"),
]
"""What a type checker makes of an expression."""

FAULTS = [
    ("orders.join(customers, lambda left, right: left.nme, foreign_key='customer')", "attr-defined"),
    ("orders.left_join(customers, lambda left, right: right.nme, foreign_key='customer')", "attr-defined"),
    ("orders.outer_join(orders, lambda left, right: right.nme)", "attr-defined"),
    ("orders.map_values(lambda order: order.amuont)", "attr-defined"),
    ("orders.filter(lambda order: order.amuont > 1)", "attr-defined"),
    ("orders.filter_not(lambda order: order.amuont > 1)", "attr-defined"),
    ("stream.join(stream, lambda one, two: two.amuont, within='1 hour')", "attr-defined"),
    ("stream.left_join(customers, lambda order, customer: customer.nme)", "attr-defined"),
    ("stream.join(numbers, lambda order, text: text.loud(), key_selector='amount')", "attr-defined"),
    ("stream.join(customers, lambda key, order, customer: key.amount)", "misc"),
    ("stream.join(numbers, lambda key, other, order, text: other.x, key_selector='amount')", "misc"),
    ("stream.select_key(lambda order: order.custmer)", "attr-defined"),
    ("stream.group_by(lambda order: order.custmer, key=str)", "attr-defined"),
    ("stream.group_by_key().reduce(lambda total, order: order.amount)", "arg-type"),
    ("orders.map_values(lambda order: order.amount).map_values(lambda amount: amount.x)", "attr-defined"),
]
"""A line of a user, and what mypy says of it."""


def test_keys_and_values_have_types(checked: Path, tmp_path: Path) -> None:
    """`KTable[str, Order]`: also of what is made of it; and what is not declared is Any."""
    program = TYPED + "".join(f"reveal_type({line})\n" for line, _ in TYPES)
    found = mypy(checked, program, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    revealed = re.findall(r'Revealed type is "(.*)"$', found.stdout, re.MULTILINE)
    assert [re.sub(r"\b(?:[a-z_]+\.)+", "", one) for one in revealed] == [kind for _, kind in TYPES]


def test_a_field_that_does_not_exist_is_found(checked: Path, tmp_path: Path) -> None:
    found = mypy(checked, TYPED + "".join(f"{line}\n" for line, _ in FAULTS), tmp_path)
    first = TYPED.count("\n") + 1
    wanted = [(str(first + number), code) for number, (_, code) in enumerate(FAULTS)]
    assert errors_of(found) == wanted, found.stdout + found.stderr
