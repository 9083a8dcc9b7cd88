"""`cs.run`: what `python app.py` does, without Spark where nothing runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import crossstream as cs
from crossstream.cli import loading
from crossstream.cli.loading import load
from tests.cli.cases import ENVIRONMENT, ROOT, app_file, call

APP = """
import crossstream as cs

made = cs.StreamsBuilder()
made.stream("orders").to("copies")
{settings}
app = cs.run(made{argument})
print("AFTER", app.status)
"""
CONFIG = 'settings = cs.StreamsConfig(application_id="copies", topics_dir="topics")'
WHOLE = APP.format(settings=CONFIG, argument=", settings")
WITHOUT = APP.format(settings="", argument="")


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_a_file_that_calls_run_is_loaded_without_running_it(tmp_path, capsys):
    file = app_file(tmp_path, WHOLE)
    loaded = load(str(file))
    assert loaded.config is not None
    assert loaded.config.application_id == "copies"
    assert [node.name for node in loaded.topology] == ["orders", "orders.to(copies)"]
    shown = call(capsys, "describe", file)
    assert (shown.code, shown.err) == (0, "")
    assert "AFTER" not in shown.out
    assert "copies" in shown.out


def test_a_name_that_is_given_wins_over_what_run_gets(tmp_path):
    other = 'other = cs.StreamsBuilder()\nother.stream("others").to("elsewhere")\n'
    file = app_file(tmp_path, WHOLE.replace("app = ", other + "app = "))
    assert "others" in load(f"{file}:other").topology.nodes
    assert "orders" in load(str(file)).topology.nodes


def test_a_file_that_calls_run_can_be_imported(tmp_path):
    app_file(tmp_path, WHOLE)
    run = python(tmp_path, "-c", "import app; print(sorted(app.made.build().nodes))")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "['orders', 'orders.to(copies)']"
    assert not (tmp_path / "crossstream-state").exists()


@pytest.mark.parametrize(
    ("text", "words", "code", "says"),
    [
        (WITHOUT, [], 1, "[CS-203] the application reads or writes topics, but no option"),
        (WHOLE, [], 1, "[CS-602]"),
        (WHOLE, ["--nothing"], 2, "unrecognized arguments: --nothing"),
        (WHOLE, ["--help"], 0, "--once"),
    ],
)
def test_what_python_says_is_what_crossstream_run_says(tmp_path, text, words, code, says):
    app_file(tmp_path, text)
    run = python(tmp_path, "app.py", *words)
    assert run.returncode == code, run.stderr
    assert says in run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    assert "AFTER" not in run.stdout


def nine_lines() -> str:
    """The first application of README.md on topics: a foreign-key join of two to a third."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("## A join\n")[2].partition("```python no-run\n")
    return rest.partition("```")[0]


def test_a_foreign_key_join_takes_nine_lines(tmp_path):
    text = nine_lines()
    assert len(text.splitlines()) <= 9
    with cs.TopologyTestDriver(load(str(app_file(tmp_path, text))).topology) as driver:
        driver.create_input_topic("products").pipe_input("mug", {"name": "Mug", "merchant_id": "m1"})
        driver.create_input_topic("merchants").pipe_input("m1", {"name": "Cozy"})
        expected = {"name": "Mug", "merchant_id": "m1", "merchant_name": "Cozy"}
        assert driver.create_output_topic("offers").read_key_values() == [("mug", expected)]


def test_what_run_cannot_run_is_refused_where_it_is_called():
    with pytest.raises(cs.TopologyError, match="takes a StreamsBuilder or a Topology, not int") as caught:
        cs.run(5)
    assert caught.value.where["line"].startswith(__file__)
    builder = cs.StreamsBuilder()
    builder.stream("x")
    with pytest.raises(cs.ConfigError, match="run has no config"):
        cs.run(builder)
    with pytest.raises(cs.ConfigError, match="the config of run is int"):
        cs.run(builder, 5)


def test_a_file_that_fails_after_run_was_named_leaves_no_trace():
    with loading.loading():
        pass
    loading.end_loading(cs.Topology({}, {}), None)
