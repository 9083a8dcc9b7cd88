"""Writes events into a folder: ``python -m benchmarks.nexmark.write FOLDER --events 1000000``.

A file of JSON lines for each table, with the bytes that the records in Kafka have, and one of Parquet. The closers
come last.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.nexmark.events import closers, events, side_input
from benchmarks.nexmark.sending import lines
from benchmarks.nexmark.topics import SIDE_INPUT


def write(folder: Path, count: int, seed: int = 1) -> None:
    """``count`` events of this seed, the closers, and the bounded table of q13."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [*events(count, seed).and_then(closers()).tables(), (SIDE_INPUT, side_input())]
    for table, rows in tables:
        rows.write_parquet(folder / f"{table}.parquet")
        with (folder / f"{table}.json").open("w") as file:
            file.writelines(f"{line}\n" for line in lines(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.events, arguments.seed)


if __name__ == "__main__":
    main()
