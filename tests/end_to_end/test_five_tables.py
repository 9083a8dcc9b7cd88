"""Rows of five tables in a real Postgres, through Debezium, Avro, joins by foreign keys and an aggregation: as in SQL.

Connect, the broker, the registry and the application are killed while the rows change.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from crossstream import serdes
from crossstream.dev.cdc import Parts
from crossstream.kafka import KafkaConnection
from crossstream.serdes.calls import decode_objects
from tests.end_to_end import real_parts
from tests.end_to_end.clients import messages
from tests.end_to_end.real_parts import await_saved, kill_server, restart_failed, restarted
from tests.faults.lives import kill

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 2
ROWS, CHANGES = 100_000, 20_000
VICTIMS = (
    *("connect", "application", "broker", "application connect", "registry"),
    *("broker application", "connect broker", "application", "application"),
)
"""What is killed together, turn after turn."""
LARGE = 3_000
"""Characters of a text that Postgres stores beside the row; an update that leaves it unchanged does not read it."""

TABLES = """
CREATE TABLE addresses (id int PRIMARY KEY, city text NOT NULL);
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, address_id int, about text);
CREATE TABLE products (id int PRIMARY KEY, price numeric(8, 2) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int, note text);
CREATE TABLE order_lines (
    order_id int, line int, product_id int, quantity int NOT NULL, PRIMARY KEY (order_id, line)
);
ALTER TABLE customers ALTER about SET STORAGE EXTERNAL;
ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;
ALTER TABLE orders REPLICA IDENTITY FULL; -- a changed key with a large note
"""
NAMED = """
SELECT o.id, c.name, a.city, length(c.about) AS about, length(o.note) AS note
FROM orders o JOIN customers c ON c.id = o.customer_id LEFT JOIN addresses a ON a.id = c.address_id"""
TOTALS = """
SELECT l.order_id AS id, count(*) AS lines, sum(l.quantity * p.price) AS cost
FROM order_lines l JOIN products p ON p.id = l.product_id GROUP BY l.order_id"""

Key = tuple[int, ...]


@dataclass
class Shop:
    """Which rows there are, and statements that change one of them each."""

    rng: Random
    rows: int
    keys: dict[str, list[Key]] = field(default_factory=dict)
    next_id: int = 1_000_000

    def fill(self) -> str:
        """Statements that make the tables and their rows: a half of them lines, a quarter orders."""
        tenth = self.rows // 10
        counts = {"addresses": tenth, "customers": tenth, "products": tenth // 2, "orders": self.rows // 4}
        made = [TABLES]
        columns = {
            "addresses": "'city ' || n % 300",
            "customers": f"'name ' || n, (n * 7919) % {tenth + 20}, {self.about('n')}",
            "products": "(n % 1000) / 100.0",
            "orders": f"(n * 7907) % {tenth + 50}, CASE WHEN n % 97 = 0 THEN repeat('n', {LARGE} + n % 50) END",
        }
        for name, count in counts.items():
            self.keys[name] = [(n,) for n in range(count)]
            made.append(
                f"INSERT INTO {name} SELECT n, {columns[name]} FROM generate_series(0, {count - 1}) n;"
            )
        return "\n".join([*made, self.fill_lines()])

    def fill_lines(self) -> str:
        lines, orders, products = self.rows // 2, self.rows // 4, self.rows // 20 + 9
        self.keys["order_lines"] = [(n % orders, n // orders) for n in range(lines)]
        return (
            f"INSERT INTO order_lines SELECT n % {orders}, n / {orders}, (n * 31) % {products}, n % 7 "
            f"FROM generate_series(0, {lines - 1}) n;"
        )

    @staticmethod
    def about(id: str) -> str:
        """A large text for each fiftieth customer, whose key does not change."""
        return f"CASE WHEN {id} % 50 = 0 THEN repeat('a', {LARGE} + {id} % 70) END"

    def script(self, changes: int) -> str:
        """So many changes of single rows, in transactions of any size; and one that is rolled back."""
        made = ["BEGIN; UPDATE customers SET name = 'never'; DELETE FROM addresses; ROLLBACK;"]
        while changes:
            size = min(changes, self.rng.choice((1, 1, 2, 10, 40)))
            made.append(";\n".join(["BEGIN", *(self.change() for _ in range(size)), "COMMIT;"]))
            changes -= size
        return "\n".join(made)

    def change(self) -> str:
        """An insert, an update, a changed key, a moved foreign key, or a delete."""
        rng = self.rng
        table = rng.choices(list(self.keys), [1, 3, 1, 4, 5])[0]
        keys = self.keys[table]
        number = rng.randrange(len(keys))
        key = keys[number]
        where = f"WHERE order_id = {key[0]} AND line = {key[1]}" if len(key) == 2 else f"WHERE id = {key[0]}"
        what = rng.choices(("update", "move", "rekey", "insert", "delete"), [8, 4, 2, 3, 3])[0]
        if what == "insert":
            self.next_id += 1
            new = (rng.choice(self.keys["orders"])[0], self.next_id) if len(key) == 2 else (self.next_id,)
            keys.append(new)
            return f"INSERT INTO {table} VALUES ({', '.join(map(str, new))}, {self.columns(table, new[0])})"
        if what == "delete":
            keys[number] = keys[-1]
            keys.pop()
            return f"DELETE FROM {table} {where}"
        if what == "rekey" and not (table == "customers" and key[0] % 50 == 0):
            self.next_id += 1 if (self.next_id + 1) % 50 else 2
            if len(key) == 2:
                keys[number] = (rng.choice(self.keys["orders"])[0], self.next_id)
                return f"UPDATE {table} SET order_id = {keys[number][0]}, line = {self.next_id} {where}"
            keys[number] = (self.next_id,)
            return f"UPDATE {table} SET id = {self.next_id} {where}"
        if what == "move" and table in ("customers", "orders", "order_lines"):
            to = {"customers": "address", "orders": "customer", "order_lines": "product"}[table]
            return f"UPDATE {table} SET {to}_id = {self.partner(table)} {where}"
        return f"UPDATE {table} SET {self.update(table)} {where}"

    def columns(self, table: str, id: int) -> str:
        """The values of a new row behind its key."""
        partner = self.partner(table)
        return {
            "addresses": f"'city {id % 300}'",
            "customers": f"'new {id}', {partner}, {self.about(str(id))}",
            "products": f"{id % 1000} / 100.0",
            "orders": f"{partner}, 'new'",
            "order_lines": f"{partner}, {id % 7}",
        }[table]

    def update(self, table: str) -> str:
        some = self.rng.randrange(1000)
        return {
            "addresses": f"city = 'city {some % 300}'",
            "customers": f"name = 'name {some}'",
            "products": f"price = {some} / 100.0",
            "orders": self.rng.choice(
                [f"note = repeat('x', {some})", "note = NULL", "customer_id = customer_id"]
            ),
            "order_lines": f"quantity = {some % 9}",
        }[table]

    def partner(self, table: str) -> str:
        """A key of the table that the foreign key names; perhaps none, or one that does not exist."""
        to = {"customers": "addresses", "orders": "customers", "order_lines": "products"}.get(table)
        kind = self.rng.random()
        if to is None or kind < 0.03:
            return "NULL"
        return str(self.next_id + 77 if kind < 0.06 else self.rng.choice(self.keys[to])[0])


def running(parts: Parts, prefix: str, folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The application in a process group of its own."""
    kafka, registry = parts.broker.bootstrap_servers, parts.registry.url
    return real_parts.running("five_tables.py", folder, PREFIX=prefix, SERVERS=kafka, REGISTRY=registry)


def start(parts: Parts, prefix: str, shop: Shop) -> None:
    """The database with its rows, the topics of the results, and the connector."""
    parts.postgres.execute(f"CREATE DATABASE {prefix}")
    parts.postgres.execute(shop.fill(), prefix)
    log = KafkaConnection(parts.broker.bootstrap_servers).log()
    for result in ("named", "totals"):
        log.create_topic(f"{prefix}.{result}", PARTITIONS)
    log.close()
    settings = {"topic.creation.default.partitions": str(PARTITIONS), "skipped.operations": "none"}
    parts.capture(prefix, prefix, settings)
    parts.await_topics(*(f"{prefix}.public.{table}" for table in shop.keys))


def in_sql(parts: Parts, database: str) -> dict[str, dict[int, Any]]:
    def number(text: str | None) -> int | None:
        return None if text is None else int(text)

    def id(row: dict[str, str | None]) -> int:
        return int(row["id"] or 0)

    return {
        "named": {
            id(row): {**row, "id": None, "about": number(row["about"]), "note": number(row["note"])}
            for row in parts.postgres.select(NAMED, database)
        },
        "totals": {
            id(row): {"id": None, "lines": number(row["lines"]), "cost": Decimal(row["cost"] or 0)}
            for row in parts.postgres.select(TOTALS, database)
        },
    }


def in_topic(parts: Parts, topic: str) -> dict[int, Any]:
    """The last value of each key."""
    newest = {message.key(): message.value() for message in messages(parts.broker.bootstrap_servers, topic)}
    there = {key: value for key, value in newest.items() if value is not None}
    if not there:  # and so perhaps no schema of them
        return {}
    keys = pa.array(list(there), pa.large_binary())
    values = pa.array(list(there.values()), pa.large_binary())
    rows = decode_objects(serdes.confluent_avro(parts.registry.url, subject=f"{topic}-value"), values)
    return {
        id: {"id": None, **row} for id, row in zip(decode_objects(serdes.int64(), keys), rows, strict=True)
    }


def await_equal(
    parts: Parts,
    prefix: str,
    folder: Path,
    process: subprocess.Popen[bytes],
    seconds: float,
    restarts: bool = False,
) -> None:
    """Returns when the topics have what SQL shows. ``restarts``: a connector that failed."""
    wanted = in_sql(parts, prefix)
    assert len(wanted["named"]) > 100
    assert len(wanted["totals"]) > 100
    deadline = time.monotonic() + seconds
    while True:
        found = {name: in_topic(parts, f"{prefix}.{name}") for name in wanted}
        if found == wanted:
            return
        if restarts:
            restart_failed(parts, prefix)
        failed = process.poll() is not None or parts.failure(prefix)
        if failed or time.monotonic() > deadline:
            differ = {
                name: [
                    (id, wanted[name].get(id), found[name].get(id))
                    for id in sorted(wanted[name].keys() | found[name].keys())
                    if wanted[name].get(id) != found[name].get(id)
                ]
                for name in wanted
            }
            counts = {name: len(rows) for name, rows in differ.items()}
            some = {name: rows[:5] for name, rows in differ.items()}
            raise AssertionError((counts, some, failed, (folder / "log").read_text()[-3000:]))
        time.sleep(1)


@pytest.mark.timeout(600)
def test_five_tables_are_joined_as_in_sql(parts: Parts, tmp_path: Path) -> None:
    shop = Shop(Random(1), 2_000)
    start(parts, "few", shop)
    with running(parts, "few", tmp_path) as process:
        parts.postgres.execute(shop.script(500), "few")
        parts.postgres.execute("ALTER TABLE products ADD COLUMN color text", "few")
        parts.postgres.execute(f"BEGIN; TRUNCATE order_lines; {shop.fill_lines()} COMMIT;", "few")
        parts.postgres.execute(shop.script(500), "few")
        await_equal(parts, "few", tmp_path, process, 300)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_five_tables_are_joined_as_in_sql_whatever_is_killed(parts: Parts, tmp_path: Path) -> None:
    shop = Shop(Random(2), ROWS)
    start(parts, "five", shop)
    # A connector that is killed before Connect has saved the end of its snapshot takes another one. Rows that were
    # deleted before that one stay in the topic: Debezium does not know of them.
    parts.postgres.execute("UPDATE products SET price = 1 WHERE id = 0", "five")
    await_saved(parts, "five")
    half = CHANGES // len(VICTIMS) // 2
    with ExitStack() as lives:
        process = lives.enter_context(running(parts, "five", tmp_path))
        for victims in VICTIMS:
            done = (tmp_path / "batches").stat().st_size
            parts.postgres.execute(shop.script(half), "five")
            await_batch(parts, process, tmp_path, done)
            for victim in victims.split():
                if victim == "application":
                    kill(process)
                else:
                    kill_server(getattr(parts, victim))
            parts.postgres.execute(shop.script(half), "five")
            parts = restarted(parts)
            if process.poll() is not None:
                process = lives.enter_context(running(parts, "five", tmp_path))
        await_equal(parts, "five", tmp_path, process, 900, restarts=True)


def await_batch(parts: Parts, process: subprocess.Popen[bytes], folder: Path, done: int) -> None:
    """Returns when the application has processed a batch; ``done``: the size of the file of batches before."""
    deadline = time.monotonic() + 300
    while (folder / "batches").stat().st_size == done:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
        restart_failed(parts, "five")
        time.sleep(0.2)
