"""`crossstream evolve` and `crossstream state revert`: a changed application takes over its state, or gives it back.

Exit codes of `evolve`: 0 done, or nothing differs; 3 with ``--dry-run``: there is something to do; 1 it is refused.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any, TextIO

from crossstream.cli.console import SparkOutput, counted, own_stdout, say
from crossstream.cli.loading import Loaded, load, settled, with_topics_of
from crossstream.cli.query import parse_time, state_root
from crossstream.config import StreamsConfig
from crossstream.durations import to_timestamp
from crossstream.evolution.committing import Changed
from crossstream.evolution.decision import Decision
from crossstream.evolution.evolve import Evolved, evolve
from crossstream.evolution.results import sink_text
from crossstream.evolution.revert import Code
from crossstream.evolution.revert import revert as take_back
from crossstream.evolution.text import dry_run
from crossstream.query.text import to_json
from crossstream.spark.streams import rounds_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application
from crossstream.storage.root import root_of

SOMETHING_TO_DO = 3
"""The exit code of a dry run that finds work."""


def main(arguments: Namespace) -> int:
    """Prints what it finds and will do, then what it has done."""
    loaded = load(arguments.file)
    state_root(arguments.state_dir)
    config = _config(loaded, arguments)
    as_json = arguments.format == "json"
    with own_stdout() as out, _engine(config, everything=arguments.debug):
        done = evolve(
            loaded.topology,
            config,
            partial(rounds_of, spark=None),
            changed=arguments.changed,
            every=arguments.all,
            replay_from=_time(arguments.replay_from),
            dry_run=arguments.dry_run,
            tell=None if as_json else partial(_tell, out),
        )
    if as_json:
        print(to_json(_plain(done, config)))
    elif done.commit is not None:
        say(_done(done.commit.id, _places(done.decision.wanted, done.sent), done.seconds))
    is_found = arguments.dry_run and not done.decision.is_empty
    return SOMETHING_TO_DO if is_found else 0


def revert(arguments: Namespace) -> int:
    """Takes back the newest change."""
    root = state_root(arguments.state_dir)
    code, noted = None, BatchLog(root).application()
    with ExitStack() as opened:
        if arguments.app is not None:
            loaded = load(arguments.app)
            config = _config(loaded, arguments)
            opened.enter_context(_engine(config, everything=arguments.debug))
            code = Code(loaded.topology, config, partial(rounds_of, spark=None))
        topics = _topics(arguments) if code is None else None
        done: Changed = take_back(root, code, keep_results=arguments.keep_results, topics=topics)
    say(_done(done.commit.id, _places(noted, done.sent), done.seconds))
    if arguments.keep_results:
        say("results stay as they are until their inputs change; what came since the change is read again")
    return 0


def _topics(arguments: Namespace) -> StreamsConfig | None:
    """Where the topics are, if the options say so."""
    if arguments.topics_dir is None and arguments.bootstrap_servers is None:
        return None
    return with_topics_of(StreamsConfig(application_id="revert"), arguments)


def _config(loaded: Loaded, arguments: Namespace) -> StreamsConfig:
    config = settled(loaded, arguments)
    return replace(config, spark={"spark.log.level": "ERROR", **config.spark})


def _tell(out: TextIO, log: BatchLog, decision: Decision) -> None:
    print(dry_run(log, decision), end="", file=out, flush=True)


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text == "earliest" else to_timestamp(parse_time(text))


def _places(application: Application | None, sent: Mapping[str, int]) -> dict[str, int]:
    """Rows by where they went to, for people. ``application``: whose sinks these are."""
    found: dict[str, int] = {}
    for sink, rows in sent.items():
        place = sink if application is None else sink_text(application.topology, sink)
        found[place] = found.get(place, 0) + rows
    return found


def _done(batch: int, sent: Mapping[str, int], seconds: float) -> str:
    rows = [f"{counted(rows, 'row')} to {sink}" for sink, rows in sorted(sent.items())]
    return f"this is batch {batch}: sent {', '.join(rows) or 'nothing'}, in {seconds:.1f} s"


def _plain(done: Evolved, config: StreamsConfig) -> dict[str, Any]:
    """What ``--format json`` prints."""
    decision = done.decision
    return {
        "application_id": config.application_id,
        "batch": decision.commit.id,
        "nothing_to_do": decision.is_empty,
        "changes": list(decision.changes),
        "kept": dict(decision.kept),
        "rebuilt": list(decision.rebuilt),
        "empty": list(decision.empty),
        "dropped": list(decision.dropped),
        "read_again": dict(decision.read_again),
        "results": [{"sink": one.sink, "compared_with": one.compared} for one in decision.results],
        "events": list(decision.events),
        "gone": list(decision.gone),
        "questions": [{"operator": one.node, "role": one.role, "why": one.why} for one in decision.questions],
        "committed": None if done.commit is None else done.commit.id,
        "sent": dict(done.sent),
        "seconds": round(done.seconds, 3),
    }


@contextmanager
def _engine(config: StreamsConfig, *, everything: bool) -> Iterator[None]:
    """What Spark says goes to its file; what functions print goes to standard error."""
    if config.engine == "local":
        with redirect_stdout(sys.stderr):
            yield
        return
    output = SparkOutput(say, root_of(config.state_path).here / "spark.log", everything=everything)
    try:
        with output.inherited():
            yield
    finally:
        output.close()
