"""Records `windows.json` from Kafka's own driver: ``python -m tests.operators.aggregate.vectors.record``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.operators.aggregate.kafka import request
from tests.operators.aggregate.windowed import Case, Record, random_records
from tests.oracle.oracle import Oracle
from tests.reference.windows import Kind

FILE = Path(__file__).with_name("windows.json")
KINDS: tuple[tuple[Kind, int, int, int], ...] = (
    ("time", 10, 0, 10), ("time", 10, 3, 4), ("session", 5, 0, 0), ("session", 8, 6, 0), ("sliding", 6, 0, 0),
    ("sliding", 9, 5, 0),
)  # fmt: skip


def main() -> None:
    """One stream for each kind of windows, operation and way of coming out."""
    vectors = []
    with Oracle() as oracle:
        for kind, size, grace, advance in KINDS:
            for operator in ("count", "reduce", "aggregate"):
                for final in (False, True):
                    case = Case(kind, operator, size, grace, advance, final)
                    records: list[Record] = random_records(Random(f"{case}"), 24)
                    answer = oracle.run(request(case, records))
                    vectors.append({"case": asdict(case), "records": records, "kafka": answer})
        made = {"kafka": oracle.kafka_version, "vectors": vectors}
    FILE.write_text(json.dumps(made, separators=(",", ":")).replace('{"case"', '\n{"case"') + "\n")


if __name__ == "__main__":
    main()
