"""`crossstream doctor` and the small commands: what they find, and what they say about it."""

from __future__ import annotations

import importlib
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crossstream.dev import broker, doctor, servers
from crossstream.dev import commands as development
from crossstream.dev.broker import BrokerInfo
from crossstream.dev.doctor import Check
from tests.cli.cases import ROOT, call


def java_at(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it is of this version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize(
    ("version", "result"), [("17.0.15", "ok"), ("21", "ok"), ("11.0.2", "problem"), ("1.8.0_292", "problem")]
)
def test_java(tmp_path, monkeypatch, version, result):
    monkeypatch.setenv("JAVA_HOME", str(java_at(tmp_path, version)))
    assert doctor.java().result == result


def test_no_java(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "correct or unset JAVA_HOME" in doctor.java().fix
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.java() == Check("Java", "problem", "there is no Java on this machine", doctor.java().fix)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (
            "http://me:secret@x",
            "http://x: state cannot be kept at this URI: the scheme http is not supported",
        ),
        ("file://x/state", "file://x/state: state cannot be kept at this URI: a file URI names a folder"),
        ("s3://", "s3://: state cannot be kept at this URI: it names no bucket"),
        ("file", "file is a file, not a folder"),
        ("file/state", "file is a file, not a folder"),
    ],
)
def test_a_place_of_the_state_that_is_none_is_a_row(tmp_path, monkeypatch, place, found):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    first = next(doctor.state(place))
    assert (first.subject, first.result) == ("state folder", "problem")
    assert first.found.replace(f"{tmp_path}/", "").startswith(found)
    assert first.fix


def test_required_packages_are_those_of_the_project():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert listed is not None
    found = re.findall(r'"([a-z-]+)>=([\d.]+)(?:,<([\d.]+))?"', listed[1])
    assert {name: (oldest, first_not or None) for name, oldest, first_not in found} == doctor.REQUIRED


def test_packages_are_there():
    assert [check for check in doctor.packages() if check.result != "ok"] == []


def test_a_package_that_is_missing_old_or_broken(monkeypatch):
    versions = {"polars": None, "pyspark": "3.5.1", "pyarrow": "26.0"}
    monkeypatch.setattr(
        doctor, "_version", lambda name: versions.get(name, "999") if name in versions else "0"
    )
    monkeypatch.setattr(doctor, "_imported", lambda modules: {"pyarrow": "ImportError: x"})
    found = {check.subject: check for check in doctor.packages()}
    assert (found["polars"].found, found["polars"].fix) == (
        "not installed",
        'pip install "polars>=1.44.1,<3"',
    )
    assert found["pyspark"].found == "3.5.1, wanted pyspark>=4.0,<5"
    assert found["pyarrow"].found == "26.0 cannot be imported: ImportError: x"


def test_modules_are_imported_elsewhere():
    found = doctor._imported(["json", "nothing_of_the_kind"])
    assert found["json"] is None
    assert "ModuleNotFoundError" in (found["nothing_of_the_kind"] or "")


def test_workers_python(monkeypatch, tmp_path):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert doctor.worker_python().result == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor.worker_python().result == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    assert doctor.worker_python().found.endswith("is not a Python")


def test_spark_home(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert doctor.spark_home().result == "ok"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert doctor.spark_home().result == "problem"
    version = tmp_path / "python" / "pyspark" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text(f'__version__: str = "{doctor._version("pyspark")}"\n')
    assert doctor.spark_home().result == "ok"


def test_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "FREE_BYTES", 0)
    there = doctor.folder("state folder", tmp_path / "a" / "b")
    assert there.result == "ok"
    assert f"will be made in {tmp_path}" in there.found
    (tmp_path / "file").touch()
    assert doctor.folder("state folder", tmp_path / "file" / "x").result == "problem"
    monkeypatch.setattr(doctor, "FREE_BYTES", 1 << 60)
    assert doctor.folder("state folder", tmp_path).fix == "free at least 1 GiB there"


def test_a_kafka_that_must_answer():
    assert doctor.broker(None).result in ("ok", "note")
    found = doctor.broker(f"127.0.0.1:{broker.free_port()}", patience=0.5)
    assert found.result == "problem"


@pytest.mark.parametrize(("result", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_the_exit_code_tells_whether_there_is_a_problem(capsys, monkeypatch, result, code):
    monkeypatch.setattr(doctor, "all_checks", lambda arguments: [Check("Java", result, "17", "install it")])
    outcome = call(capsys, "doctor")
    assert outcome.code == code
    assert f"Java  {result}" in outcome.out
    assert ("fix: install it" in outcome.out) == bool(code)


def test_a_benchmark_of_the_checkout_is_called_with_the_rest_of_the_line(capsys, monkeypatch, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "fk.py").write_text("def main(argv):\n    print(argv)\n    return 3\n")
    monkeypatch.setattr(development, "find_root", lambda: tmp_path)
    monkeypatch.setattr(development, "BENCHMARKS", ("fk",))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    outcome = call(capsys, "bench", "fk", "--rows", "5", "--debug", "--help")
    assert (outcome.code, outcome.out) == (3, "['--rows', '5', '--debug', '--help']\n")
    assert call(capsys, "bench").out == "[]\n"
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


ENDLESS = """
import time
def main(argv):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("left")
"""


def test_a_benchmark_that_is_told_to_end_leaves_nothing_behind(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "fk.py").write_text(ENDLESS)
    run = "import sys, pathlib; from crossstream.cli import main; from crossstream.dev import commands"
    run += "; commands.find_root = pathlib.Path.cwd; sys.exit(main(['bench', 'fk']))"
    with subprocess.Popen(
        [sys.executable, "-c", run], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.communicate(timeout=30) == ("left\n", None)
    assert process.returncode == 143


@pytest.mark.parametrize("name", development.BENCHMARKS)
def test_every_benchmark_is_there(name):
    module = importlib.import_module(f"benchmarks.{name}")
    with pytest.raises(SystemExit) as told:
        module.main(["--help"])
    assert told.value.code == 0


def test_benchmarks_that_are_not_there(capsys, monkeypatch, tmp_path):
    assert "[CS-281] there is no benchmark 'dance'" in call(capsys, "bench", "dance").err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(development, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    outcome = call(capsys, "bench", "fk")
    assert outcome.code == 2
    assert "[CS-281] the benchmarks are not here" in outcome.err


def test_broker_commands(capsys, monkeypatch, tmp_path):
    info = BrokerInfo(port=9092, pid=7, directory=str(tmp_path))
    running: list[BrokerInfo] = []
    monkeypatch.setattr(broker, "status", lambda port: running[0] if running else None)
    monkeypatch.setattr(broker, "ports", lambda: [one.port for one in running])
    monkeypatch.setattr(broker, "answers", lambda port: bool(running))
    monkeypatch.setattr(broker, "start", lambda port, directory: running.append(info) or info)
    monkeypatch.setattr(broker, "stop", lambda port: bool(running) and running.clear() is None)

    assert call(capsys, "broker", "status").code == 1
    started = call(capsys, "broker", "start")
    assert (started.code, started.out) == (0, "127.0.0.1:9092\n")
    assert f"started: process 7, {tmp_path}" in started.err
    assert "was running already" in call(capsys, "broker", "start").err
    assert call(capsys, "broker", "status").out.startswith("127.0.0.1:9092: answers\n")
    assert call(capsys, "broker", "stop").err == "stopped\n"
    assert call(capsys, "broker", "stop").err == "no broker runs at port 9092\n"


def test_the_status_of_all_brokers(capsys, monkeypatch, tmp_path):
    infos = {port: BrokerInfo(port=port, pid=port, directory=str(tmp_path)) for port in (9092, 9192)}
    monkeypatch.setattr(broker, "status", infos.get)
    monkeypatch.setattr(broker, "answers", lambda port: port == 9092)
    monkeypatch.setattr(broker, "records_folder", lambda: tmp_path)
    for name in ("9092.json", "9192.json", "9192-registry.json", "9300.json", "9092.lock"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(servers, "running_companions", lambda port: [])
    outcome = call(capsys, "broker", "status")
    assert outcome.code == 1
    firsts = [part.splitlines()[0] for part in outcome.out.split("\n\n")]
    assert firsts == ["127.0.0.1:9092: answers", "127.0.0.1:9192: does not answer"]
    assert call(capsys, "broker", "status", "--port", "9092").code == 0
    infos.clear()
    assert call(capsys, "broker", "status").err == ("port 9092: a broker answers that was not started here\n")


def test_servers_beside_the_broker(capsys, monkeypatch, tmp_path):
    info = BrokerInfo(port=9092, pid=7, directory=str(tmp_path))
    registry = servers.RegistryInfo(8081, 8, str(tmp_path), 9092)
    connect = servers.ConnectInfo(8099, 9, str(tmp_path), 9092)
    calls = []
    monkeypatch.setattr(broker, "status", lambda port: info)
    monkeypatch.setattr(broker, "ports", lambda: [9092])
    monkeypatch.setattr(broker, "answers", lambda port: True)
    monkeypatch.setattr(broker, "start", lambda port, directory: info)
    monkeypatch.setattr(broker, "stop", lambda port: True)
    monkeypatch.setattr(servers, "start_registry", lambda *given: calls.append(given) or registry)
    monkeypatch.setattr(servers, "start_connect", lambda *given: calls.append(given) or connect)
    monkeypatch.setattr(servers, "running_companions", lambda port: [registry, connect])
    monkeypatch.setattr(servers, "stop_companions", lambda port: [connect, registry])
    monkeypatch.setattr(servers.RegistryInfo, "answers", True)
    monkeypatch.setattr(servers.ConnectInfo, "answers", False)

    assert call(capsys, "broker", "start", "--registry", "--connect", "8099").out.splitlines() == [
        "broker    127.0.0.1:9092",
        "registry  http://127.0.0.1:8081/apis/ccompat/v7",
        "connect   http://127.0.0.1:8099",
    ]
    assert calls == [(info, 8081), (info, 8099, registry)]
    status = call(capsys, "broker", "status")
    assert status.code == 1
    assert "registry http://127.0.0.1:8081/apis/ccompat/v7: answers, process 8" in status.out
    assert "connect http://127.0.0.1:8099: does not answer, process 9" in status.out
    stopped = call(capsys, "broker", "stop").err
    assert stopped == "stopped Kafka Connect at port 8099\nstopped the registry at port 8081\nstopped\n"
