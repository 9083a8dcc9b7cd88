"""`cs.run`: `python app.py` does what `crossstream run app.py` does, and importing the file runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from crossstream.api.builder import StreamsBuilder
from crossstream.api.topology import Topology
from crossstream.cli import run_command
from crossstream.cli.arguments import make_parser
from crossstream.cli.loading import Loaded, end_loading
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.spark import SparkStreams


def run(
    builder: StreamsBuilder | Topology,
    config: StreamsConfig | None = None,
    *,
    arguments: Sequence[str] | None = None,
) -> SparkStreams:
    """Runs an application until Ctrl-C, with its progress on the terminal; returns it, stopped.

    In a file that Python runs (``python app.py``) it does what ``crossstream run app.py`` does: it takes the same
    options from the command line, prints errors without a traceback, and leaves with the same exit codes.
    ``arguments``: these options instead of those of the command line. ``config`` may be missing where the options say
    all. A file that calls it can be imported, and loaded by ``crossstream run``: then it runs nothing, and an import
    returns the application, not started. Elsewhere, as in a notebook, it raises what went wrong.
    """
    topology = _topology(builder)
    end_loading(topology, config)
    caller = sys._getframe(1)
    is_main = caller.f_globals.get("__name__") == "__main__"
    if caller.f_code.co_name == "<module>" and not is_main:
        return SparkStreams(topology, _known(config))
    file = _script(caller) if is_main else None
    if file is not None:
        return _as_command(file, topology, config, sys.argv[1:] if arguments is None else arguments)
    return _in_process(topology, _known(config))


def _topology(builder: object) -> Topology:
    if isinstance(builder, StreamsBuilder):
        return builder.build()
    if isinstance(builder, Topology):
        return builder
    what = f"run takes a StreamsBuilder or a Topology, not {type(builder).__name__}"
    raise refuse("CS-101", what, "write cs.run(builder, config)", **caller_location("run"))


def _known(config: object) -> StreamsConfig:
    if isinstance(config, StreamsConfig):
        return config
    what = "run has no config" if config is None else f"the config of run is {type(config).__name__}"
    step = 'pass cs.StreamsConfig(application_id="…", bootstrap_servers="…")'
    raise refuse("CS-201", what, step, **caller_location("run"))


def _script(caller: FrameType) -> Path | None:
    """The file that Python runs; None in a notebook and in an interactive session."""
    file = caller.f_globals.get("__file__")
    return Path(file) if isinstance(file, str) and Path(file).is_file() else None


def _as_command(
    file: Path, topology: Topology, config: StreamsConfig | None, arguments: Sequence[str]
) -> SparkStreams:
    from crossstream.cli.restarts import is_supervised, supervise
    from crossstream.cli.run import run_loaded

    if config is not None:
        _known(config)
    words = ["run", str(file), *arguments]
    parsed = make_parser().parse_args(words)
    if parsed.restarts and not is_supervised():
        sys.exit(supervise(words, parsed.restarts))
    made: list[SparkStreams] = []

    def command(given: object) -> int:
        code, app = run_loaded(Loaded(file, topology, config), parsed)
        made.append(app)
        return code

    code = run_command(command, parsed)
    if code:
        sys.exit(code)
    return made[0]


def _in_process(topology: Topology, config: StreamsConfig) -> SparkStreams:
    app = SparkStreams(topology, config)
    with app:
        app.start()
        with suppress(KeyboardInterrupt):
            app.await_termination()
    return app
