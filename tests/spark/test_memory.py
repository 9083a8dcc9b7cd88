"""A right row with many subscribers changes: every result comes out, and no worker grows with them (two million)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.topics import OffsetRange, TopicPartition
from tests.spark.marketplace import JSON, TEXT
from tests.spark.meanwhile import meanwhile
from tests.spark.world import NAMES, World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

SUBSCRIBERS = [
    pytest.param((200_000, 1.25), id="200,000"),
    pytest.param((2_000_000, 1.5), id="two million", marks=pytest.mark.nightly),
]
"""How many, and the resident GiB that no worker may reach."""
SHOPS = ("first", "second")
PADDING = "x" * 50
ROWS = cs.Consumed(key=TEXT, value=JSON)


@dataclass(frozen=True, slots=True)
class Market:
    """Products of one merchant, of about 90 bytes, and their prices."""

    world: World
    subscribers: int
    limit: float
    """Resident bytes that no worker may reach."""


@pytest.fixture(scope="module", params=SUBSCRIBERS)
def market(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Market:
    subscribers, limit = request.param
    world = World(tmp_path_factory.mktemp("market"))
    world.create(products=2, prices=2, direct=2, further=2)
    writer = world.topics.writer()
    for first in range(0, subscribers, 100_000):
        number = pl.int_range(first, first + 100_000, eager=True).cast(pl.String)
        product = '{"name":"P' + number + f'","merchant":"m0","description":"{PADDING}"}}'
        writer.write("products", batch("p" + number, product))
        writer.write("prices", batch("p" + number, '{"price":' + number + "}"))
    writer.close()
    return Market(world, subscribers, limit * 2**30)


def batch(keys: pl.Series, values: pl.Series) -> pa.RecordBatch:
    columns = [column.to_arrow().cast(pa.large_string()).cast(pa.large_binary()) for column in (keys, values)]
    columns += [pa.array([0] * len(keys), pa.int64()), pa.nulls(len(keys), pa.large_binary())]
    return pa.RecordBatch.from_arrays(columns, names=NAMES)


def offer(product: Any, merchant: Any) -> Any:
    return {**product, "shop": merchant["shop"]}


def direct() -> cs.Topology:
    """products ⋈ merchants, straight to a topic."""
    builder = cs.StreamsBuilder()
    products, merchants = (builder.table(topic, ROWS) for topic in ("products", "merchants-direct"))
    offers = products.join(merchants, offer, foreign_key=lambda product: product["merchant"])
    offers.to_stream().to("direct", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def further() -> cs.Topology:
    """products ⋈ merchants, kept in a store and joined with prices."""
    builder = cs.StreamsBuilder()
    products, merchants, prices = (
        builder.table(topic, ROWS) for topic in ("products", "merchants-further", "prices")
    )
    offers = products.join(
        merchants,
        offer,
        foreign_key=lambda product: product["merchant"],
        materialized=cs.Materialized(store="offers"),
    )
    priced = offers.join(prices, lambda offer, price: {**offer, **price})
    priced.to_stream().to("further", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


@pytest.mark.parametrize("topology", [direct, further])
def test_many_subscribers(
    spark: Any, market: Market, tmp_path: Path, topology: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers are in a container of YARN, which hold the least, however much memory the machine has."""
    monkeypatch.setitem(spark.sparkContext.environment, "CONTAINER_ID", "container_1")
    target, world, subscribers = topology.__name__, market.world, market.subscribers
    world.create(**{f"merchants-{target}": 1})
    most = subscribers // 8
    config = world.config(partitions=2, max_records_per_batch=most, state_dir=tmp_path / "state")
    with cs.SparkStreams(topology(), config, spark) as app, largest() as peaks:
        app.process_available()
        for shop in SHOPS:
            world.append(f"merchants-{target}", [("m0", {"shop": shop}, 1)], TEXT, JSON)
            app.process_available()
            assert app.progress.rows == 1
            assert written(app.progress, target) == subscribers
    assert len(peaks) > 2, "the workers were not found"
    assert max(peaks.values()) < market.limit, {pid: f"{peak / 2**20:.0f} MiB" for pid, peak in peaks.items()}
    check_results(world, target, subscribers)
    if target == "further":
        some = [f"p{number}" for number in range(0, subscribers, 1999)]
        rows = cs.open_store(tmp_path / "state", "offers").get_many(some)
        assert rows.keys() == set(some)
        assert {row["shop"] for row in rows.values()} == {SHOPS[-1]}


def written(progress: Any, topic: str) -> int:
    return sum(rows for operator, rows in progress.rows_out.items() if f"to({topic})" in operator)


def check_results(world: World, topic: str, subscribers: int) -> None:
    """Each product with every shop, once."""
    name = pl.col("key").cast(pl.String).str.slice(1)
    price = "," + '"price":' + name if topic == "further" else pl.lit("")
    wanted = {
        shop: '{"name":"P'
        + name
        + f'","merchant":"m0","description":"{PADDING}","shop":"{shop}"'
        + price
        + "}"
        for shop in SHOPS
    }
    keys: dict[str, list[pl.Series]] = {shop: [] for shop in SHOPS}
    for records in records_of(world, topic):
        taken = 0
        for shop, text in wanted.items():
            right = records.filter(pl.col("value").cast(pl.String) == text)
            keys[shop].append(right["key"])
            taken += len(right)
        assert taken == len(records), "a record that should not be there"
    for shop in SHOPS:
        of_shop = pl.concat(keys[shop])
        assert (len(of_shop), of_shop.n_unique()) == (subscribers, subscribers), shop


def records_of(world: World, topic: str) -> Iterator[pl.DataFrame]:
    owners = [TopicPartition(topic, partition) for partition in range(2)]
    ends = world.topics.log().end_offsets(owners)
    reader = world.topics.reader()
    for owner in owners:
        for records in reader.read(OffsetRange(topic, owner.partition, 0, ends[owner]), 100_000):
            columns = {name: pl.from_arrow(records.column(name)) for name in ("key", "value")}
            yield pl.DataFrame(columns)


@contextmanager
def largest() -> Iterator[dict[int, int]]:
    """The most resident bytes that each Python process of Spark held while the block ran: the system's own mark."""
    peaks: dict[int, int] = {}

    def look() -> None:
        for pid in workers():
            with suppress(OSError):  # gone while we looked
                peaks[pid] = max(peaks.get(pid, 0), high_water(pid))

    for pid in workers():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets the high-water mark back
    with meanwhile(look, 0.2):
        yield peaks
        look()


def high_water(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def workers() -> Sequence[int]:
    """Spark's Python processes below this one: the daemon and what it forked."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(part.endswith("daemon") for part in child.cmdline()):
                found.append(child.pid)
    return found
