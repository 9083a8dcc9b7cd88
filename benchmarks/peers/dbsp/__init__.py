"""The crate dbsp as a peer: circuits by hand, fed from memory, with two worker threads.

    measure("fk", "dbsp-inline", before={"customers": …}, input={"orders": …}, results=Path("rows"))

dbsp is the engine of Feldera, a library: no Kafka, no commits, and state in memory only, as is its default. So it does
less than the other sides. The files are read before the clock runs; each batch is one transaction, with as
many records as a batch of ours has at most. A first pass over the same records warms up.

`dbsp-inline` and `dbsp-shared`: the clock runs from decoded rows in to changed rows out. Strings of up to 24 bytes lie
in their row (crate ``compact_str``), or are shared by reference count (crate ``arcstr``, as in Feldera's own runtime).
`dbsp-json`: inline strings, and the clock runs from the JSON of the records to the JSON of the results, two threads
decode and encode (``serde_json``). That is what our side does besides Kafka and commits.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.cargo import CargoProgram

HERE = Path(__file__).resolve().parent
PROGRAM = CargoProgram(HERE, "circuits", rust=(1, 93))
SIDES: Mapping[str, tuple[str, ...]] = {
    "dbsp-inline": ("--strings", "inline"),
    "dbsp-shared": ("--strings", "shared"),
    "dbsp-json": ("--strings", "inline", "--json"),
}
BATCH = 500_000


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took. ``core_seconds``: user and system time of all threads. ``changes``: rows that came out."""

    seconds: float
    core_seconds: float
    batches: int
    changes: int
    peak_memory: int


def available() -> str | None:
    """Why there can be no peer on this machine; None if there can. Downloads are not tried."""
    return PROGRAM.missing()


def measure(
    query: str,
    side: str,
    input: Mapping[str, Path],
    results: Path,
    *,
    before: Mapping[str, Path] | None = None,
    batch: int = BATCH,
    keys: bool = True,
) -> Measured:
    """Runs a query over files of lines by topic, in batches of at most ``batch`` records.

    ``before``: files that the circuit takes in before the clock runs. ``results``: the file for the final rows, as
    lines ``key TAB row``, or of the rows alone without ``keys``. Builds the program if need be. Raises
    `Unavailable`, and `subprocess.CalledProcessError` if it fails.
    """
    PROGRAM.build()
    command = [str(PROGRAM.made), query, *SIDES[side], "--batch", str(batch), "--results", str(results)]
    for option, files in (("--before", before or {}), ("--input", input)):
        for topic, path in files.items():
            command += [option, f"{topic}={path}"]
    if not keys:
        command.append("--rows-only")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Measured(**json.loads(done.stdout))


def version() -> str:
    """The version of dbsp it is built with."""
    found = re.search(r'^dbsp = "=(.+)"$', (HERE / "Cargo.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)
