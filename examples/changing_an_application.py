"""A second version takes over the state of the first: what it will do, and the only rows that readers get.

    python examples/changing_an_application.py

A shop sends bills. In the second version customers of the tier "gold" pay a tenth less, orders without a known
customer get a bill, too, and gifts get none. The commands are those of a shell; the script runs them, without Spark.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl

import crossstream as cs
from crossstream.cli import main as main_of_crossstream


@dataclass
class Order:
    customer: str
    amount: float


@dataclass
class Customer:
    name: str
    tier: str


left, right = pl.col("left").struct, pl.col("right").struct
amount, name = left.field("amount"), right.field("name")


def first() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", value=Order)
    customers = builder.table("customers", value=Customer)
    bills = orders.join(customers, pl.struct(name, amount), foreign_key="customer", store="bills")
    bills.to("bills")
    bills.group_by("name").agg(total=cs.agg.sum("amount"), store="totals").to("totals")
    return builder.build()


def second() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", value=Order).filter(pl.col("amount") > 0)
    customers = builder.table("customers", value=Customer)
    less = pl.when(right.field("tier") == "gold").then(amount * 0.9).otherwise(amount)
    bill = pl.struct(name.fill_null("unknown"), less.alias("amount"))
    bills = orders.left_join(customers, bill, foreign_key="customer", store="bills")
    bills.to("bills")
    bills.group_by("name").agg(total=cs.agg.sum("amount"), store="totals").to("totals")
    return builder.build()


build = second

CUSTOMERS = {"c1": {"name": "Ada", "tier": "gold"}, "c2": {"name": "Ben", "tier": "basic"}}
ORDERS = {
    "o1": {"customer": "c1", "amount": 100.0},
    "o2": {"customer": "c2", "amount": 40.0},
    "o3": {"customer": "c3", "amount": 25.0},  # there is no c3
    "o4": {"customer": "c2", "amount": 0.0},
}
BILLS = {
    "o1": {"name": "Ada", "amount": 100.0},
    "o2": {"name": "Ben", "amount": 40.0},
    "o4": {"name": "Ben", "amount": 0.0},
}
DIFFERENT = {
    "o1": {"name": "Ada", "amount": 90.0},  # changed
    "o3": {"name": "unknown", "amount": 25.0},  # appeared
    "o4": None,  # gone
}
"""The bill of o2 is the same in both versions, so it is not sent again."""


@dataclass(frozen=True)
class Shop:
    """Topics and state in a folder. ``app``: this file, for the command line."""

    folder: Path
    app: str = __file__

    def crossstream(self, *words: str) -> str:
        """Runs a command as a shell does, in this process, and returns what it printed."""
        file = self.folder / "said"
        with file.open("w") as said, redirect_stdout(said), redirect_stderr(StringIO()) as errors:
            code = main_of_crossstream([*words, "--topics-dir", str(self.folder / "topics")])
        if code not in (0, 3):  # 3: a dry run has found something to do
            raise SystemExit(errors.getvalue())
        return file.read_text()

    def write(self, topic: str, rows: dict[str, Any]) -> None:
        lines = [json.dumps({"key": key, "value": value}) for key, value in rows.items()]
        file = self.folder / f"{topic}.jsonl"
        file.write_text("\n".join(lines))
        self.crossstream("topics", "write", topic, str(file))

    def read(self, topic: str) -> list[tuple[str, Any]]:
        """All records: key and value."""
        lines = map(json.loads, self.crossstream("topics", "read", topic).splitlines())
        return [(record["key"], record["value"]) for record in lines]

    def run(self, version: str) -> None:
        state = ("--state-dir", str(self.folder / "state"), "--engine", "local")
        self.crossstream("run", f"{self.app}:{version}", "--application-id", "shop", "--once", *state)

    def evolve(self, version: str, *options: str) -> str:
        words = (
            f"{self.app}:{version}",
            str(self.folder / "state"),
            "--application-id",
            "shop",
            "--engine",
            "local",
        )
        return self.crossstream("evolve", *words, *options)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        shop.crossstream("topics", "create", "orders", "customers", "bills", "totals")
        shop.write("customers", CUSTOMERS)
        shop.write("orders", ORDERS)
        shop.run("first")
        sent = shop.read("bills")
        assert dict(sent) == BILLS

        print("what the second version will do:")
        print(shop.evolve("second", "--dry-run"))
        assert shop.read("bills") == sent  # nothing happened yet

        shop.evolve("second")
        news = shop.read("bills")[len(sent) :]
        print("what readers of bills got:")
        for key, bill in news:
            print(f"  {key}: {bill}")
        assert dict(news) == DIFFERENT
        assert len(news) == 3
        assert dict(shop.read("totals")) == {
            "Ada": {"total": 90.0},
            "Ben": {"total": 40.0},
            "unknown": {"total": 25.0},
        }

        shop.run("second")  # continues: no record is processed twice
        assert len(shop.read("bills")) == len(sent) + 3

        shop.evolve("first")  # the old code is a change, too
        back = shop.read("bills")[len(sent) + 3 :]
        print("and when the first version came back:")
        for key, bill in back:
            print(f"  {key}: {bill}")
        assert dict(back) == {"o1": BILLS["o1"], "o3": None, "o4": BILLS["o4"]}


if __name__ == "__main__":
    main()
