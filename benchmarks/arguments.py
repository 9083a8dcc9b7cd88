"""The command line that the benchmarks beside Kafka Streams share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.peers.kafka_streams import peer


def parse(
    argv: Sequence[str] | None,
    name: str,
    about: str | None,
    what: str,
    choices: Sequence[str],
    sides: Sequence[str],
    port: int,
) -> argparse.Namespace:
    """What is asked of the benchmark ``name``: of the ``choices``, under the name ``what``, all if none are given.

    ``sides`` of the answer: a list, without Kafka Streams where it cannot run.
    """
    parser = argparse.ArgumentParser(prog=f"crossstream bench {name}", description=about)
    parser.add_argument(what, nargs="*", default=list(choices), help=f"of {', '.join(choices)}")
    parser.add_argument(
        "--sides",
        default=",".join(sides),
        help="crossstream-expressions@CHECKOUT runs the version of another checkout (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side, alternating")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--port", type=int, default=port)
    arguments = parser.parse_args(argv)
    arguments.sides = runnable(arguments.sides.split(","))
    return arguments


def runnable(sides: list[str]) -> list[str]:
    """The sides, without Kafka Streams where it cannot run."""
    ours = [side for side in sides if not side.startswith("kafka-streams")]
    if len(ours) < len(sides) and (reason := peer.available()) is not None:
        print(f"without Kafka Streams: {reason}")
        return ours
    return sides
