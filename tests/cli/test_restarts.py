"""`crossstream run --restarts`: what is started again, how often, and what the exit codes are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from crossstream import serdes
from crossstream.cli import restarts
from crossstream.cli.restarts import TEMPORARY, _Supervisor, is_orphaned
from crossstream.errors import CrossStreamError, ProcessingError, SourceError
from crossstream.spark.errors import is_temporary, jvm_ended
from tests.cli.cases import ENVIRONMENT, app_file, call
from tests.spark.world import World

TEXT, JSON = serdes.string(), serdes.json()
COUNTED = "import os, signal, sys; file = open({path!r}, 'a+'); file.write('x'); file.flush(); file.seek(0)\n"


def supervised(folder: Path, script: str, most: int) -> tuple[int, int]:
    """The exit code, and how often the script was run; it knows that as ``runs``."""
    path = folder / "runs"
    source = COUNTED.format(path=str(path)) + "runs = len(file.read())\n" + script
    code = _Supervisor([sys.executable, "-c", source], most).run()
    return code, len(path.read_text())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE", 0.0)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("sys.exit(0)", (0, 1)),
        ("sys.exit(1)", (1, 1)),
        ("sys.exit(2)", (2, 1)),
        ("sys.exit(75 if runs < 3 else 0)", (0, 3)),
        ("sys.exit(75)", (75, 4)),
        ("os.kill(os.getpid(), signal.SIGKILL) if runs < 2 else sys.exit(1)", (1, 2)),
        ("os.kill(os.getpid(), signal.SIGKILL)", (137, 4)),
    ],
)
def test_what_is_started_again(tmp_path: Path, script: str, outcome: tuple[int, int]) -> None:
    assert supervised(tmp_path, script, 3) == outcome


def test_health_gives_the_restarts_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "HEALTHY_SECONDS", 0.0)
    assert supervised(tmp_path, "sys.exit(75 if runs < 6 else 0)", 1) == (0, 6)


def test_each_restart_waits_twice_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(restarts, "LONGEST_PAUSE", 0.04)
    supervised(tmp_path, "sys.exit(75)", 4)
    said = [line.partition(" again in ")[2].split(" ")[0] for line in capsys.readouterr().err.splitlines()]
    assert said[:4] == ["0", "0.01", "0.02", "0.04"]


def test_sigterm_stops_the_application_and_no_other_is_started(tmp_path: Path) -> None:
    script = (
        "import sys; from crossstream.cli.restarts import _Supervisor\n"
        "child = 'import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
        "print(1, flush=True); time.sleep(60)'\n"
        "sys.exit(_Supervisor([sys.executable, '-c', child], 5).run())"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_an_orphan_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_orphaned()
    monkeypatch.setenv(restarts.PARENT, "1234567")
    assert is_orphaned()


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        (jvm_ended(), True),
        (SourceError("no broker answered", code="CS-604"), True),
        (CrossStreamError("the topology changed", code="CS-750"), False),
        (ProcessingError("a function raised", code="CS-501"), False),
        (ProcessingError("Spark could not run a batch: ModuleNotFoundError: no x", code="CS-590"), False),
    ],
)
def test_what_another_start_may_cure(error: CrossStreamError, temporary: bool) -> None:
    assert is_temporary(error) == temporary


def test_a_broker_that_is_away_is_75_and_a_wrong_file_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "run", tmp_path / "none.py").code == 1
    options = [
        "--bootstrap-servers",
        "localhost:9",
        "--broker-patience",
        "200 ms",
        "--once",
        "--restarts",
        "1",
    ]
    command = [sys.executable, "-m", "crossstream", "run", str(app_file(tmp_path)), *options]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr.count("CS-604")) == (TEMPORARY, 2), done.stderr
    assert "ended with the code 75; it starts again in 0 s, 0 restarts are left" in done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_a_killed_jvm_is_another_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(products=1, merchants=1, promotions=1)
    world.append("merchants", [("m", {"name": "Mia"}, 1)], TEXT, JSON)
    options = ["--topics-dir", str(world.topics_dir), "--state-dir", str(world.state_dir), "--format", "json"]
    options += ["--spark", "spark.master=local[1]", "--restarts", "2"]
    command = [sys.executable, "-m", "crossstream", "run", str(app_file(tmp_path)), *options]
    with (
        open(tmp_path / "stderr", "wb") as said,
        subprocess.Popen(
            command, env=ENVIRONMENT, cwd=tmp_path, stdout=subprocess.PIPE, stderr=said
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["batch"] == 0
            tree = psutil.Process(process.pid).children(recursive=True)
            next(one for one in tree if one.name() == "java").kill()
            world.append("products", [("p", {"name": "hat", "merchant": "m"}, 2)], TEXT, JSON)
            assert json.loads(process.stdout.readline())["rows_in"]["products"] == 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "stderr").read_text()
        finally:
            process.terminate()
    text = (tmp_path / "stderr").read_text()
    assert "ended with the code 75; it starts again in 0 s, 1 restarts are left" in text, text
    assert world.table("promotions", TEXT, JSON) == {"p": {"name": "hat", "shop": "Mia"}}
