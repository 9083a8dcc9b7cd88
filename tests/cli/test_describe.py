"""Loading a user's file, and showing its topology."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import pytest

from crossstream.cli.loading import load
from crossstream.errors import ConfigError, TopologyError
from crossstream.serdes import shipping
from tests.cli.cases import APP, ENVIRONMENT, app_file, call, start

NAMED = APP.replace("builder = ", "shop = ").replace("builder.", "shop.")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (APP, ""),
        (APP + "topology = builder.build()\n", ""),
        (APP + "def topology():\n    return builder\n", ""),
        (NAMED + "def build():\n    return shop.build()\n", ""),
        (NAMED, ":shop"),
        (NAMED + "def other():\n    return shop\n", ":other"),
    ],
    ids=["builder", "topology", "function topology", "build", "named builder", "named function"],
)
def test_a_topology_is_found(tmp_path, text, name):
    loaded = load(f"{app_file(tmp_path, text)}{name}")
    assert "products.join(merchants)" in loaded.topology.nodes
    assert loaded.config is None


def test_a_config_is_found(tmp_path):
    loaded = load(str(app_file(tmp_path, APP + "config = cs.StreamsConfig(application_id='promo')\n")))
    assert loaded.config is not None
    assert loaded.config.application_id == "promo"


@pytest.mark.parametrize(
    ("text", "name", "code", "what", "next"),
    [
        ("x = 1\n", "", "CS-270", "has no topology or builder or build", "name a Topology"),
        (NAMED, "", "CS-270", "has no topology", "app.py:shop"),
        (APP, ":promo", "CS-270", "has no promo", "app.py:builder"),
        (APP, ":products", "CS-270", "products in app.py is KTable", "give the name of"),
        (
            "def build():\n    return 1 / 0\n",
            "",
            "CS-270",
            "build() in app.py raised ZeroDivisionError",
            "without arg",
        ),
        ("def build(x):\n    return x\n", "", "CS-270", "raised TypeError", "without arguments"),
        ("import nothing_of_the_kind\n", "", "CS-270", "ModuleNotFoundError", "fix the file"),
        ("def (\n", "", "CS-270", "SyntaxError", "fix the file"),
        ("import sys\nsys.exit(3)\n", "", "CS-270", "SystemExit: 3", "__main__"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, name, code, what, next):
    file = app_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(f"{file}{name}")
    error = caught.value
    assert error.code == code
    assert what in error.what
    assert next in (error.next or "")
    assert str(file) in str(error)


def test_the_line_that_failed_is_named(tmp_path):
    file = app_file(tmp_path, "\n\nimport nothing_of_the_kind\n")
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    assert caught.value.where["line"] == f"{file}:3"


@pytest.mark.parametrize("form", ["builder = cs.StreamsBuilder()\n", "build = cs.StreamsBuilder\n"])
def test_the_file_that_reads_nothing_is_named(tmp_path, form):
    file = app_file(tmp_path, "import crossstream as cs\n" + form)
    with pytest.raises(TopologyError) as caught:
        load(str(file))
    assert (caught.value.code, caught.value.where) == ("CS-126", {"file": file})


def test_there_must_be_a_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "nope.py:topology"))
    assert caught.value.code == "CS-270"


def test_errors_of_the_topology_pass_with_their_line(tmp_path):
    file = app_file(tmp_path, APP + "products.join(merchants, 1)\n")
    with pytest.raises(TopologyError) as caught:
        load(str(file))
    assert str(caught.value.where["line"]).startswith(f"{file}:")


def test_a_file_may_import_its_neighbours_and_leaves_no_module_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    app_file(tmp_path, APP, "neighbour_of_app.py")
    file = app_file(tmp_path, "from neighbour_of_app import builder\n")
    before = set(sys.modules)
    load(str(file))
    assert set(sys.modules) - before <= {"neighbour_of_app", "crossstream_app_app"}
    assert not hasattr(sys.modules["crossstream_app_app"], "builder")
    monkeypatch.delitem(sys.modules, "neighbour_of_app")


def test_functions_of_the_file_travel_by_value(tmp_path):
    text = APP.replace("lambda product: product[", "lambda product: itself(product)[")
    file = app_file(tmp_path, "def itself(value):\n    return value\n" + text, "far_away.py")
    node = load(str(file)).topology["products.join(merchants)"]
    packed = cloudpickle.dumps(node.foreign_key.call)
    program = f"import pickle; print(pickle.loads({packed!r})({{'merchant': 'm1'}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("m1\n", "")


TYPED = """
from __future__ import annotations
import dataclasses, enum, typing
import msgspec
import crossstream as cs
from crossstream import serdes

class Color(enum.Enum):
    RED = "red"

class Item(typing.TypedDict):
    color: Color

@dataclasses.dataclass
class Car:
    color: Color

class Hat(msgspec.Struct):
    color: Color

def build():
    class Bag(msgspec.Struct):
        color: Color

    builder = cs.StreamsBuilder()
    for kind in (Item, Car, Hat, Bag):
        builder.stream(kind.__name__, cs.Consumed(key=serdes.string(), value=serdes.json(kind)))
    return builder
"""


@pytest.mark.parametrize("text", [TYPED, TYPED + "builder = build()\n"], ids=["build", "builder"])
@pytest.mark.parametrize("kind", ["Item", "Car", "Hat", "Bag"])
def test_annotations_that_are_text_find_names_of_the_file(tmp_path, text, kind):
    value = load(str(app_file(tmp_path, text, "typed.py"))).topology[kind].value
    packed = shipping.dumps(value)
    row = b'{"color":"red"}'
    program = (
        f"import pickle; serde = pickle.loads({packed!r}); print(serde.serialize(serde.deserialize({row!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{row!r}\n", "")


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ([], "Topologies:\n   Sub-topology: 0"),
        (["--mermaid"], "flowchart TD\n"),
        (["--dot"], "digraph topology {"),
        (["--plan"], "Round 0:"),
        (["--plan", "--partitions", "7"], "7 tasks"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_describe_prints(capsys, tmp_path, option, shown):
    outcome = call(capsys, "describe", app_file(tmp_path), *option)
    assert outcome.code == 0
    assert shown in outcome.out


@pytest.mark.parametrize("form", [[], ["--mermaid"], ["--dot"]], ids=" ".join)
def test_partitions_are_of_the_plan_only(capsys, tmp_path, form):
    outcome = call(capsys, "describe", app_file(tmp_path), *form, "--partitions", "7")
    assert (outcome.code, outcome.out) == (2, "")
    assert "[CS-281] --partitions works with --plan only" in outcome.err


def test_describe_starts_no_jvm(tmp_path):
    with start("describe", app_file(tmp_path), env={"JAVA_HOME": "/nowhere"} | ENVIRONMENT) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "promotions" in out
