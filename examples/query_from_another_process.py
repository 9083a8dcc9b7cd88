"""Queries from another process: an application writes state, and a process without Spark reads it.

python examples/query_from_another_process.py folder       # on Spark; topics and state are made in the folder
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()

QUERY = """
import sys
import crossstream as cs

offers = cs.open_store(sys.argv[1], "offers")
print(offers.get("scarf")["shop"])
print(cs.open_store(sys.argv[1], "offers", as_of=0).get("scarf")["shop"])
assert "pyspark" not in sys.modules
"""


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    read = cs.Consumed(key=TEXT, value=serdes.json())
    builder.table("products", read).join(
        builder.table("merchants", read),
        lambda product, merchant: {**product, "shop": merchant["name"]},
        foreign_key="merchant",
        store="offers",
    )
    return builder.build()


def topics(action: str, *arguments: str, folder: str, records: list[dict[str, Any]] | None = None) -> None:
    """Calls `crossstream topics`, as in a shell."""
    command = [sys.executable, "-m", "crossstream", "topics", action, *arguments, "--topics-dir", folder]
    lines = "\n".join(map(json.dumps, records or []))
    subprocess.run(command, input=lines, text=True, check=True, stdout=subprocess.DEVNULL)


def main(folder: str, spark: Any = None) -> None:
    files, state = f"{folder}/topics", f"{folder}/state"
    topics("create", "products", "merchants", folder=files)
    product = {"key": "scarf", "value": {"name": "Scarf", "merchant": "m1"}}
    topics("write", "products", folder=files, records=[product])
    config = cs.StreamsConfig(application_id="shop", topics_dir=files, state_dir=state)
    with cs.SparkStreams(build(), config, spark) as app:
        for name in ("Knit & Co", "Best Knits"):
            topics("write", "merchants", folder=files, records=[{"key": "m1", "value": {"name": name}}])
            app.process_available()
        answer = subprocess.run(
            [sys.executable, "-c", QUERY, state], capture_output=True, text=True, check=True
        ).stdout
    assert answer.splitlines() == ["Best Knits", "Knit & Co"]
    print("now: Best Knits; as of the first batch: Knit & Co")


if __name__ == "__main__":
    main(sys.argv[1])
