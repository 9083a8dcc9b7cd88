"""Records `groups.json` from Kafka's own driver: ``python -m tests.operators.aggregate.vectors.record_groups``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.operators.aggregate.groups import STREAMS, TABLES, Case, Record, random_records
from tests.operators.aggregate.kafka import grouped_request
from tests.oracle.oracle import Oracle

FILE = Path(__file__).with_name("groups.json")
OPERATORS = ("count", "reduce", "aggregate")


def cases() -> Iterator[Case]:
    for source, operator in zip(STREAMS, OPERATORS, strict=True):
        yield Case("stream", source, operator)
        yield Case("counts", source, operator)
    for number, source in enumerate(TABLES):
        yield Case("table", source, OPERATORS[number % 3])
    yield Case("table", "table", "aggregate", none=True)
    yield Case("cogroup", "re-keyed", "aggregate")
    yield Case("restream", "key", "count")
    yield Case("table restream", "table", "reduce")
    for kind in ("time", "session", "sliding"):
        yield Case("windowed cogroup", "key", "aggregate", kind=kind, grace=3)
        yield Case("closed", "key", "aggregate", kind=kind)
    yield Case("windows", "key", "aggregate", advance=4)
    yield Case("windows", "key", "reduce", kind="session")


CLOSING = [Record("in", key, f"{key}1", ts) for key, ts in (("a", 10), ("b", 14), ("b", 24), ("a", 38))]
"""No window that the store of Kafka loses (decision 8.20)."""


def many_records(case: Case) -> list[Record]:
    return max((random_records(Random(f"{case} {n}"), case, 24) for n in range(8)), key=len)


def main() -> None:
    """A few records for each case."""
    vectors = []
    with Oracle() as oracle:
        for case in cases():
            records = CLOSING if case.shape == "closed" else many_records(case)
            answer = oracle.run(grouped_request(case, records))
            vectors.append({"case": asdict(case), "records": records, "kafka": answer})
        made = {"kafka": oracle.kafka_version, "vectors": vectors}
    FILE.write_text(json.dumps(made, separators=(",", ":")).replace('{"case"', '\n{"case"') + "\n")


if __name__ == "__main__":
    main()
