"""What the foreign-key join of the benchmark must give, against a loop over the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from benchmarks.fk_results import COLUMNS, Records, differs

from benchmarks import fk_results


def by_hand(records: Records) -> list[dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    for files in (records.before, records.input):
        for table, path in files.items():
            for line in path.read_text().splitlines():
                key, _, value = line.partition("\t")
                tables[table].pop(key, None)
                if value:
                    tables[table][key] = json.loads(value)
    joined = []
    for key, order in tables["orders"].items():
        customer = tables["customers"].get(order["customer_id"])
        if customer is not None:
            values = (order["item"], order["amount"], customer["name"], customer["city"])
            joined.append({"id": key, **dict(zip(COLUMNS, values, strict=True))})
    return sorted(joined, key=lambda row: row["id"])


def test_left_updates(tmp_path: Path) -> None:
    records = fk_results.left(tmp_path, customers=80, orders=300, updates=1_000)
    rows = by_hand(records)
    assert 200 < len(rows) < 300  # some are deleted in the end
    assert records.expected().sort("id").to_dicts() == rows


def test_fan_out(tmp_path: Path) -> None:
    records = fk_results.fan_out(tmp_path, customers=10, subscribers=20)
    rows = by_hand(records)
    assert len(rows) == 200
    assert records.expected().sort("id").to_dicts() == rows


def test_differences_are_found(tmp_path: Path) -> None:
    expected = fk_results.fan_out(tmp_path, customers=5, subscribers=4).expected()
    assert differs(expected.reverse(), expected) is None
    assert differs(expected.head(19), expected) == "19 rows instead of 20"
    wrong = expected.with_columns(
        city=pl.when(pl.col("id") == "o0000003").then(pl.lit("x")).otherwise("city")
    )
    assert (differs(wrong, expected) or "").startswith("1 rows differ, such as {'id': 'o0000003'")
    other = expected.with_columns(id=pl.col("id").str.replace("o0000003", "o9"))
    assert (differs(other, expected) or "").startswith("1 rows differ")


def test_a_file_of_results(tmp_path: Path) -> None:
    row = '{"item":"i","amount":1.5,"customer":"n","city":"c"}'
    (tmp_path / "rows").write_text(f"a\t{row}\nb\t{row}\na\nend-1\t{row}\n")
    assert fk_results.of_file(tmp_path / "rows").rows() == [("b", "i", 1.5, "n", "c")]
