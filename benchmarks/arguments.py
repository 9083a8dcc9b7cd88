"""The command line that the benchmarks beside other engines share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.peers import dbsp
from benchmarks.peers.flink import peer as flink
from benchmarks.peers.kafka_streams import peer as kafka_streams

PEERS = {
    "kafka-streams": kafka_streams.PROGRAM.missing,
    "flink": flink.PROGRAM.missing,
    "dbsp": dbsp.available,
}
"""By what the names of its sides begin with: why a peer cannot run here, or None."""


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

    ``sides`` of the answer: a list, without the peers that cannot run here.
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
    """The sides, without the peers that cannot run here, which are named with the reason."""
    for name, available in PEERS.items():
        others = [side for side in sides if not side.startswith(name)]
        if len(others) < len(sides) and (reason := available()) is not None:
            print(f"without {name}: {reason}")
            sides = others
    return sides
