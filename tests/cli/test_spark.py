"""`crossstream run` on Spark, in a process of its own: batches, signals, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import crossstream as cs
from crossstream.filetopics import FileTopics
from tests.cli.cases import APP, ENVIRONMENT, app_file, call, start
from tests.cli.test_application import nine_lines

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = """
config = cs.StreamsConfig(application_id="promo", topics_dir="topics", state_dir="state", partitions=1)
"""
LOUD = APP.replace(".to_stream()", '.to_stream().peek(lambda key, value: print("SEEN", key))')
FAILING = APP.replace('product["name"]', 'product["nothing"]')


class Shop:
    """A folder with topics, and an application beside them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        log = FileTopics(str(folder / "topics")).log()
        for topic in ("products", "merchants", "promotions"):
            log.create_topic(topic, 1)

    def write(self, topic: str, **rows: object) -> None:
        file = self.folder / "rows.jsonl"
        file.write_text("".join(json.dumps({"key": k, "value": v}) + "\n" for k, v in rows.items()))
        assert (
            call(self._capsys, "topics", "write", topic, file, "--topics-dir", self.folder / "topics").code
            == 0
        )

    def run(self, *options: str, app: str = LOUD, **more: bool):
        app_file(self.folder, app + SETTINGS)
        return start("run", "app.py", "--json", *options, cwd=self.folder, **more)

    def result(self) -> dict[str, object]:
        return dict(cs.open_store(self.folder / "state", "promotions").all())


@pytest.fixture
def shop(tmp_path, capsys) -> Iterator[Shop]:
    shop = Shop(tmp_path, capsys)
    shop.write("merchants", m1={"name": "Cozy"})
    shop.write("products", mug={"name": "Mug", "merchant": "m1"})
    return shop


def test_python_runs_the_nine_lines_of_the_readme(shop):
    text = nine_lines().replace('bootstrap_servers="localhost:9092"', 'topics_dir="topics"')
    text += 'print("AFTER")\n'
    app_file(shop.folder, text)
    FileTopics(str(shop.folder / "topics")).log().create_topic("offers", 1)
    shop.write("products", cup={"name": "Cup", "merchant_id": "m1"})
    command = [sys.executable, "app.py", "--once", "--format", "json"]
    run = subprocess.run(
        command, env=ENVIRONMENT, cwd=shop.folder, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    *batches, after = run.stdout.splitlines()
    assert sum(json.loads(batch)["rows"] for batch in batches) == 3
    assert after == "AFTER"
    read = call(shop._capsys, "topics", "read", "offers", "--topics-dir", shop.folder / "topics")
    offer = {"name": "Cup", "merchant_id": "m1", "merchant_name": "Cozy"}
    assert [(line["key"], line["value"]) for line in read.lines] == [("cup", offer)]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_stops_it_after_the_batch_and_the_next_run_goes_on(shop, number):
    with shop.run() as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["batch"], first["rows"], first["lag"]) == (0, 2, 0)
        assert {"plan", "run", "publish", "commit"} <= first["phases_ms"].keys()
        shop.write("merchants", m1={"name": "Cosy"})
        assert json.loads(process.stdout.readline())["batch"] == 1
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    starting, running = err.splitlines()[:2]
    assert starting == "starting Spark…"
    assert running.startswith("running promo, topics: topics, state: state, partitions: 1, Spark: http://")
    end = ["stopping after the running batch; a second signal ends at once", "stopped"]
    assert err.splitlines()[-2:] == end, err
    assert "SEEN mug" in err
    assert "Traceback" not in err
    assert "Warning" not in err
    assert shop.result() == {"mug": {"name": "Mug", "shop": "Cosy"}}

    shop.write("products", cup={"name": "Cup", "merchant": "m1"})
    with shop.run(start_new_session=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["batch"] == 2
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends Ctrl-C to all processes of a group
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"
    assert shop.result()["cup"] == {"name": "Cup", "shop": "Cosy"}


EARLY = """
import os, signal, sys, threading
import crossstream.spark.session as session
from crossstream.cli import main

def interrupted(context, warm_up=session.warm_up):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    warm_up(context)

session.warm_up = interrupted
sys.exit(main(["run", "app.py"]))
"""


def test_ctrl_c_while_spark_starts_prints_one_line(shop):
    """The first job runs, and the SparkContext is there: in the main thread it would have taken the signal."""
    app_file(shop.folder, LOUD + SETTINGS)
    done = subprocess.run(
        [sys.executable, "-c", EARLY],
        cwd=shop.folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines() == ["starting Spark…", "stopped"]


@pytest.mark.parametrize("once", [[], pytest.param(["--once"], marks=pytest.mark.nightly)])
def test_an_error_is_code_what_where_and_next(shop, once):
    with shop.run(*once, app=FAILING) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (1, "")
    assert "Traceback" not in err
    assert "Warning" not in err
    said = err[err.index("[CS-501]") :].splitlines()
    assert "KeyError: 'nothing'" in said[0]
    assert f"line {shop.folder}/app.py:" in said[1]
    assert "key mug" in said[1]
    assert "log state/spark.log" in said[1]
    assert said[2].startswith("  next:  fix the function")
    assert "KeyError" in (shop.folder / "state" / "spark.log").read_text()


def test_a_missing_topic_is_told_before_anything_runs(shop):
    with shop.run("--once", app=LOUD.replace('"merchants", JSON', '"merchant", JSON')) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "the topic 'merchant' does not exist" in err
