"""`crossstream run`: its views, what Spark prints, signals. The application is a stand-in here."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import crossstream as cs
from crossstream.cli.arguments import make_parser
from crossstream.cli.console import SparkOutput, fitted, middle
from crossstream.cli.loading import load
from crossstream.cli.run import _logged, _run, _wait, run_loaded
from crossstream.cli.views import Figures, JsonView, LinesView, LiveView, as_line, as_text, make_view, render
from crossstream.metrics.observation import Progress
from crossstream.spark import SparkStreams
from crossstream.spark.session import SHARED
from tests.cli.cases import ENVIRONMENT, app_file, call


def progress(batch: int = 0, rows: int = 10, **more: Any) -> Progress:
    known: dict[str, Any] = {
        "seconds": 0.5,
        "rows_in": {"products": rows},
        "rows_out": {"sink": 2 * rows},
        "matched": {"join": rows},
        "unmatched": {"join": 1},
        "state_rows": {"promotions": 7},
        "phases": {"plan": 1.0, "run": 400.0, "publish": 2.0, "commit": 3.0, "round 0": 55.0},
        "lag": 4,
        "total_rows": rows,
    }
    return Progress(batch=batch, rows=rows, **(known | more))


def test_figures_are_sums_and_a_rate():
    figures = Figures(started=100.0)
    figures.add(progress(0, 10), 101.0)
    figures.add(progress(1, 30), 104.0)
    sums = figures.sums
    assert (figures.rows, sums.rows_in, sums.rows_out) == (40, {"products": 40}, {"sink": 80})
    assert (sums.matched, sums.unmatched) == ({"join": 40}, {"join": 2})
    assert figures.rows_per_second(104.0) == 10.0
    assert figures.rows_per_second(112.0) == 3.0
    assert figures.rows_per_second(200.0) == 0.0


def test_a_batch_is_a_json_line():
    out = io.StringIO()
    JsonView(out).batch(progress())
    line = json.loads(out.getvalue())
    assert line["rows_per_second"] == 20.0
    assert line["phases_ms"]["run"] == 400.0
    renamed = {"phases": "phases_ms"}
    fields = {renamed.get(name, name) for name in progress().to_dict()}
    assert line.keys() == {"time", "rows_per_second", *fields}
    assert (line["matched"], line["unmatched"], line["warnings"]) == ({"join": 10}, {"join": 1}, [])
    assert as_line(progress(seconds=0.0), 0.0)["rows_per_second"] == 0.0


def shown(figures: Figures, width: int = 80, height: int = 24, state: str = "running", **more: object) -> str:
    """The live view on a terminal of that size, without the blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, height=height)
    title = (
        "promo\ntopics: localhost:9092, state: crossstream-state/promo, partitions: 4\nSpark: http://h:4040"
    )
    console.print(render(figures, title, state, 110.0, size=(width, height), **more))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


LONG = "products.join(merchants).filter.map_values"
GOLDEN = """promo  running  0:00:10
topics: localhost:9092, state: crossstream-state/promo, partitions: 4
Spark: http://h:4040

rows        100 a second   1,000 so far   4 waiting
now         batch 4 running: 4,381 records, 3 s
last        batch 3   1,000 records   500 ms
phases, ms  1 plan   400 run   30 for_each_batch   2 publish   3 commit
tasks, ms   55 round 0

dropped                                                                     rows
products: null-key                                                             2
operator                                                     rows in    rows out
products                                                       1,000
products.join(merchants).fil…r.map_values.to(promotions)                   2,000
join                                                         matched   unmatched
join                                                           1,000           1
store                                                      live rows     on disk
promotions                                                         5           7
products.join(merchants).filter.map_values.subscriptions              12,345,678"""


def busy() -> Figures:
    figures = Figures(started=100.0)
    phases = {
        "plan": 1.0,
        "run": 400.0,
        "for_each_batch": 30.0,
        "publish": 2.0,
        "commit": 3.0,
        "round 0": 55.0,
    }
    one = progress(
        3,
        1000,
        rows_out={f"{LONG}.to(promotions)": 2000},
        total_dropped={"products: null-key": 2},
        state_rows={"promotions": 7, f"{LONG}.subscriptions": 12_345_678},
        phases=phases,
    )
    figures.add(one, 105.0)
    return figures


RUNNING = (SimpleNamespace(batch=4, records=4381), 3.2)


def test_the_live_view_at_80_by_24():
    assert shown(busy(), running=RUNNING, live={"promotions": 5}) == GOLDEN


def test_the_live_view_before_the_first_batch_is_done():
    assert "waiting for records" in shown(Figures(started=100.0))
    text = shown(Figures(started=100.0), running=RUNNING)
    assert "batch 4 running: 4,381 records, 3 s" in text
    assert "waiting for records" not in text


@pytest.mark.parametrize(
    "state", ["running", "failed", "stopping after this batch; Ctrl-C again ends at once"]
)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (132, 43), (40, 24)])
def test_the_live_view_fits_and_keeps_its_numbers(width, height, state):
    figures = busy()
    for number in range(20):
        figures.sums.rows_in[f"operator-{number}-with-quite-a-long-name-for-a-terminal"] = 1_234_567
    lines = shown(figures, width, height, state, running=RUNNING).splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert height == 20 or any(line.endswith("12,345,678") for line in lines)
    assert any("1,234,567" in line for line in lines)
    assert state.split(";")[0][:20] in lines[0]


def test_what_has_failed_is_not_called_stopped(capfd):
    for view in (LinesView(io.StringIO()), LiveView(io.StringIO())):
        view.starting()
        view.failed()
        view.close()
        view.starting() if isinstance(view, LinesView) else None
    assert view._state == "failed"
    assert "stopped" not in capfd.readouterr().err


def test_the_live_view_lives():
    out = io.StringIO()
    view = LiveView(out)
    view.starting()
    view.started("promo\ntopics: t", StandIn())
    view.batch(progress())
    view.line("printed by a function")
    view.stopping()
    view.close()
    text = out.getvalue()
    assert "printed by a function" in text
    assert "promo  stopped" in text


def test_a_batch_is_a_readable_line():
    out = io.StringIO()
    view = LinesView(out)
    view.batch(progress(7, 4381, seconds=3.0412, dropped={"orders: null-key": 2}))
    assert out.getvalue().endswith(
        "Z batch 7: 4,381 records in 3.04 s, 4 waiting, dropped 2 (orders: null-key)\n"
    )
    assert as_text(progress(1, 1, lag=0), 1e9) == "2001-09-09T01:46:40Z batch 1: 1 record in 0.5 s"


@pytest.mark.parametrize(
    ("options", "form"), [((), "auto"), (("--json",), "json"), (("--format", "lines"), "lines")]
)
def test_json_is_asked_for(options, form):
    assert make_parser().parse_args(["run", "app.py", *options]).format == form


def test_elsewhere_than_on_a_terminal_there_are_lines():
    assert type(make_view("auto", io.StringIO())) is LinesView
    assert type(make_view("json", io.StringIO())) is JsonView


LOG = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
[orders]: o1, 7
26/11/21 08:18:10 ERROR Executor: Exception in task 0.0 in stage 1.0 (TID 1)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
crossstream.spark.errors.WorkerError: [CS-501] a function raised
\tat org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.IOException: x
[orders]: o2, 8
"""


def test_what_functions_print_is_told_from_what_spark_logs(tmp_path):
    lines: list[str] = []
    output = SparkOutput(lines.append, tmp_path / "state" / "spark.log")
    assert output.log is None
    for line in LOG.splitlines():
        output.take(line)
    output.close()
    assert lines == ["[orders]: o1, 7", "[orders]: o2, 8"]
    assert output.log is not None
    assert output.log.read_text().splitlines() == [line for line in LOG.splitlines() if line not in lines]


def test_a_log_line_behind_an_unfinished_one_is_told_apart(tmp_path):
    lines: list[str] = []
    output = SparkOutput(lines.append, tmp_path / "spark.log")
    for line in ["no end26/11/22 04:55:11 ERROR Executor: it failed", "Traceback (most recent call last):"]:
        output.take(line)
    output.close()
    assert lines == ["no end"]
    assert output.log is not None
    assert "it failed\nTraceback" in output.log.read_text()


def test_everything_is_shown_when_asked_for(tmp_path):
    lines: list[str] = []
    output = SparkOutput(lines.append, tmp_path / "spark.log", everything=True)
    for line in LOG.splitlines():
        output.take(line)
    output.close()
    output.take("too late")
    assert lines == LOG.splitlines()


def test_processes_started_meanwhile_print_into_the_pipe(tmp_path, capfd):
    lines: list[str] = []
    output = SparkOutput(lines.append, tmp_path / "spark.log")
    with output.inherited():
        program = "import sys; print('out'); print('err', file=sys.stderr)"
        subprocess.run([sys.executable, "-c", program], check=True)
    print("afterwards", flush=True)
    output.close()
    assert sorted(lines) == ["err", "out"]
    assert capfd.readouterr().out == "afterwards\n"


MEANWHILE = """
import subprocess, sys, time
from pathlib import Path
from crossstream.cli.console import say
from crossstream.cli.arguments import make_parser
from crossstream.cli.console import SparkOutput, fitted, middle

shown = []


def show(line):
    shown.append(line)
    say(line)


output = SparkOutput(show, Path(sys.argv[1]), everything=sys.argv[2] == "everything")
with output.inherited():
    subprocess.run(["echo", "26/11/21 08:18:10 ERROR Executor: it failed"], check=True)
    say("said")
    time.sleep(0.5)
    until = time.monotonic() + 30
    while len(shown) < int(sys.argv[3]) and time.monotonic() < until:
        time.sleep(0.05)  # another thread reads what is said
say("afterwards")
output.close()
print(len(shown))
"""


@pytest.mark.parametrize(
    ("log", "how", "shown"),
    [
        ("spark.log", "everything", True),
        ("file/spark.log", "sorted", True),
        ("/dev/full", "sorted", True),
        ("spark.log", "sorted", False),
    ],
    ids=["everything", "no place for the log", "a full disk", "sorted"],
)
def test_what_is_said_while_spark_starts_is_said_once(tmp_path, log, how, shown):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", MEANWHILE, str(tmp_path / log), how, str(int(shown))],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    failed = ["26/11/21 08:18:10 ERROR Executor: it failed"] if shown else []
    assert sorted(done.stderr.splitlines()) == [*failed, "afterwards", "said"]
    assert int(done.stdout) == len(failed)


def test_the_stack_of_a_jvm_that_ends_is_not_shown(tmp_path):
    lines: list[str] = []
    output = SparkOutput(lines.append, tmp_path / "spark.log")
    for line in (
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn',
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)",
        "Exception in thread Thread-1 (work):",
    ):
        output.take(line)
    output.close()
    assert lines == ["Exception in thread Thread-1 (work):"]


class StandIn:
    """As much of SparkStreams as `run` uses."""

    running = None
    spark_ui_address = "http://h:4040"
    ui_address = None
    progress = SimpleNamespace(batch=-1, state_rows={})
    plan = SimpleNamespace(stores={})
    topology: tuple[object, ...] = ()

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error
        self._stopped = threading.Event()

    def start(self) -> None:
        self.calls.append("start")

    def await_termination(self, timeout: float | None = None) -> bool:
        return self._stopped.wait(timeout)

    def process_available(self) -> None:
        if self._error is not None:
            raise self._error
        self.calls.append("process")

    def stop(self) -> None:
        self.calls.append("stop")
        self._stopped.set()


def run_with(app: StandIn, tmp_path, *, once: bool = False) -> io.StringIO:
    view = JsonView(io.StringIO())
    config = cs.StreamsConfig(application_id="a", topics_dir=tmp_path / "t", state_dir=tmp_path)
    _run(app, config, view, SparkOutput(view.line, tmp_path / "log"), once=once)
    return view


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_application(tmp_path, capfd, number):
    app = StandIn()
    before = signal.getsignal(number)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), number)).start()
    run_with(app, tmp_path)
    assert app.calls == ["start", "stop"]
    assert signal.getsignal(number) is before
    assert "stopping after the running batch" in capfd.readouterr().err


def test_once_ends_by_itself(tmp_path):
    app = StandIn()
    run_with(app, tmp_path, once=True)
    assert app.calls == ["start", "process", "stop"]


def test_what_the_application_fails_with_is_raised_after_it_is_stopped(tmp_path, capfd):
    app = StandIn(cs.ProcessingError("a function raised", code="CS-501"))
    with pytest.raises(cs.ProcessingError):
        run_with(app, tmp_path, once=True)
    assert app.calls == ["start", "stop"]
    assert capfd.readouterr().err.splitlines()[-1] == "failed"


def test_an_interrupt_that_spark_took_is_a_stop_too(tmp_path):
    app = StandIn()

    def interrupted() -> None:
        raise KeyboardInterrupt

    app.start = interrupted  # type: ignore[method-assign]
    run_with(app, tmp_path)
    assert app.calls == ["stop"]


@pytest.mark.parametrize(
    ("option", "code", "what"),
    [
        ("--state-dir", "CS-723", "a file is there, and no folder"),
        ("--topics-dir", "CS-201", "topics_dir is a file, not a folder"),
    ],
)
def test_a_place_that_is_no_folder_is_told_before_spark_starts(
    tmp_path, capfd, monkeypatch, option, code, what
):
    monkeypatch.setattr(SparkStreams, "start", lambda app: pytest.fail("Spark starts"))
    (tmp_path / "file").write_text("")
    places = {"--topics-dir": tmp_path / "topics", "--state-dir": tmp_path / "state"}
    options = places | {option: tmp_path / "file"}
    given = [word for option in options.items() for word in option]
    outcome = call(capfd, "run", app_file(tmp_path), "--once", *given)
    assert outcome.code == 1
    assert f"[{code}]" in outcome.err
    assert what in outcome.err
    assert str(tmp_path / "file") in outcome.err


def test_waiting_ends_when_asked():
    asked = threading.Event()
    threading.Timer(0.2, asked.set).start()
    started = time.monotonic()
    _wait(StandIn(), asked, once=False)
    assert time.monotonic() - started < 5


def test_a_second_signal_ends_at_once():
    program = (
        "import os, signal, time\n"
        "from crossstream.cli.restarts import on_signals\n"
        "from crossstream.cli.run import Interrupts\n"
        "with on_signals(Interrupts(lambda: print('first', flush=True)).handle):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(30)\n"
        "    time.sleep(30)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for said in ("ready", "first"):
            assert process.stdout.readline() == f"{said}\n"
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130


class Early:
    """A JVM that has printed a line of its log."""

    def __init__(self) -> None:
        self.output, writing = os.pipe()
        os.write(writing, b"26/01/01 12:00:00 WARN Utils: set SPARK_LOCAL_IP\n")
        os.close(writing)


@pytest.mark.parametrize("asked", [False, True])
def test_errors_refer_to_the_log_of_spark_where_spark_was_asked(tmp_path, monkeypatch, capfd, asked):
    monkeypatch.chdir(tmp_path)
    early = Early()

    def start(app: SparkStreams) -> None:
        if asked:
            SHARED.early = None
        time.sleep(0.2)
        raise cs.SourceError("the topic is not there", code="CS-602", where={"topic": "products"})

    monkeypatch.setattr(SparkStreams, "start", start)
    arguments = make_parser().parse_args(["run", str(app_file(tmp_path)), "--once", "--topics-dir", "t"])
    try:
        with pytest.raises(cs.SourceError) as caught:
            run_loaded(load(arguments.file), arguments, early)  # type: ignore[arg-type]
    finally:
        SHARED.early = None
    assert list(caught.value.where) == ["topic", *(["log"] if asked else [])]


def test_ctrl_c_while_it_starts_ends_it_at_once():
    program = (
        "import time\n"
        "from crossstream.cli.restarts import on_signals\n"
        "from crossstream.cli.run import Interrupts\n"
        "interrupts = Interrupts(lambda: print('first', flush=True))\n"
        "interrupts.while_starting = lambda: print('stopped', flush=True)\n"
        "with on_signals(interrupts.handle):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(30)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 130


def test_it_starts_in_another_thread_where_spark_takes_no_signals(tmp_path):
    app, threads = StandIn(), list[threading.Thread]()
    app.start = lambda: threads.append(threading.current_thread())  # type: ignore[method-assign]
    run_with(app, tmp_path, once=True)
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("debug", "expected"),
    [(False, ["a worker ended"]), (True, ["app: starts", "a worker ended", "app: failed"])],
)
def test_the_log_is_shown_unless_the_view_says_the_same(debug, expected):
    lines: list[str] = []
    story, other = logging.getLogger("crossstream"), logging.getLogger("crossstream.spark")
    with without_handlers(), _logged(SimpleNamespace(line=lines.append), debug=debug):
        story.info("app: starts")
        other.warning("a worker ended")
        story.error("app: failed")
    assert lines == expected
    assert not story.handlers


@contextmanager
def without_handlers() -> Iterator[None]:
    """As a process where nobody has configured logging; pytest has."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = before


@pytest.mark.parametrize(
    ("width", "short"), [(40, "orders.join(customers).filter"), (15, "orders.….filter"), (1, "…"), (2, "o…")]
)
def test_a_name_is_shortened_in_the_middle(width, short):
    assert middle("orders.join(customers).filter", width) == short


def test_a_table_is_made_to_fit():
    head, rows = ["store", "kind", "rows"], [["orders.join(customers).filter", "key-value", "1,234,567"]]
    right = [False, False, True]
    assert fitted(head, rows, right, 80, ["kind"]) == (head, rows, right)
    assert fitted(head, rows, right, 45, ["kind"]) == (
        ["store", "rows"],
        [["orders.join(customers).filter", "1,234,567"]],
        [False, True],
    )
    assert fitted(head, rows, right, 30, ["kind"])[1] == [["orders.j….filter", "1,234,567"]]
    assert fitted(head, rows, right, 5)[1][0][2] == "1,234,567"
