"""`crossstream demo --postgres`: from a row in Postgres to the joined result, statement by statement."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from crossstream import serdes
from crossstream.cli.console import SparkOutput, aligned, own_stdout, shortest
from crossstream.cli.loading import load
from crossstream.dev import cdc
from crossstream.dev.cdc import Parts, Postgres
from crossstream.dev.demo import DemoFolder, DemoView, cell_of, command, compared, on_spark
from crossstream.kafka import KafkaConnection
from crossstream.metrics.observation import stand_texts
from crossstream.spark import SparkStreams
from crossstream.topics import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from crossstream.kafka.log import KafkaLog

FOLLOW_SECONDS = 60.0
"""How long the result may take to follow a change."""

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (
  id int PRIMARY KEY, customer_id int, amount numeric(10, 2));
INSERT INTO customers VALUES
  (1, 'Ada', 'London'), (2, 'Grace', 'Arlington'), (4, 'Barbara', 'Boston');
INSERT INTO orders VALUES
  (10, 1, 12.50), (11, 1, 7), (12, 2, 99.90), (15, 4, 30), (16, 4, 5.50);
"""
CHANGES = (
    ("A new order", "INSERT INTO orders VALUES (13, 2, 45.00)"),
    (
        "A customer moves: all orders of this customer follow",
        "UPDATE customers SET city = 'Paris' WHERE id = 1",
    ),
    ("An order for a customer who is not there yet", "INSERT INTO orders VALUES (14, 3, 8.25)"),
    ("The customer arrives: the order was waiting", "INSERT INTO customers VALUES (3, 'Edsger', 'Nuenen')"),
    ("An order goes to another customer", "UPDATE orders SET customer_id = 2 WHERE id = 10"),
    ("An order gets another key", "UPDATE orders SET id = 110 WHERE id = 11"),
    (
        "Two changes in one transaction",
        "BEGIN; UPDATE customers SET name = 'Grace Hopper' WHERE id = 2;\n"
        "   UPDATE orders SET amount = 50 WHERE id = 13; COMMIT",
    ),
    ("A customer is deleted", "DELETE FROM customers WHERE id = 2"),
)
JOIN = """
SELECT orders.id, customers.name AS customer, customers.city, orders.amount
FROM orders JOIN customers ON customers.id = orders.customer_id"""

WHOLE = {"provide.transaction.metadata": "true"}
"""The connector's setting for events of transactions, in the topic ``shop.transaction``."""
SOURCES = ("shop.public.customers", "shop.public.orders")
RESULT = "shop.sales"

Table = Mapping[int, tuple[str, str | None, Decimal]]
"""The customer, the city and the amount of each order."""


def main(arguments: Namespace) -> int:
    """Runs the demo from beginning to end."""
    folder = DemoFolder(Path(arguments.dir).expanduser().absolute())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: all servers stop
    folder.empty()
    folder.write_shop()
    with own_stdout() as out, ExitStack() as stack:
        view = DemoView(out)
        view.say("SQL changes two tables in Postgres. Their join, a topic in Kafka, follows.", "bold")
        cdc.find_postgres()  # without it nothing is loaded
        load_servers(view)
        with view.waiting("Starting Postgres, Kafka, a schema registry and Kafka Connect"):
            parts = stack.enter_context(cdc.parts())
        stack.callback(view.say, "Stopping the servers.", "dim")
        play(parts, folder, view, debug=arguments.debug)
    return 0


def load_servers(view: DemoView) -> None:
    """Loads the servers that this machine has not yet, and says what each is and how large."""
    for jars in cdc.SERVERS:
        if jars.find() is None:
            with view.waiting(f"Loading {jars.title}, which is done once"):
                folder = jars.fetch()
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            view.say(f"   {jars.title}: {size / 1e6:,.0f} MB in {shortest(folder)}", "dim")


def play(parts: Parts, folder: DemoFolder, view: DemoView, *, debug: bool = False) -> None:
    """Makes the tables, starts the application, changes the tables, and compares."""
    for name, address in (
        ("Postgres", f"127.0.0.1:{parts.postgres.port}"),
        ("Kafka", parts.broker.bootstrap_servers),
        ("registry", parts.registry.url),
        ("Connect", parts.connect.url),
    ):
        view.say(f"   {name:9} {address}", "dim")
    view.say()
    view.say("Two tables in Postgres", "bold")
    view.say(textwrap.indent(TABLES.strip(), "   "), "cyan")
    parts.postgres.execute(TABLES)
    with view.waiting("Debezium reads them"):
        parts.capture("shop", settings=WHOLE)
        parts.await_topics(*SOURCES)
    with running(parts, folder, view, debug=debug) as result:
        view.say()
        view.say(f"Their join in the topic {RESULT}", "bold")
        _show(view, {}, *result.follow({}), after="the start")
        for number, (title, sql) in enumerate(CHANGES, 1):
            view.say()
            view.say(f"{number}. {title}", "bold")
            view.say(f"   {sql};", "cyan")
            before, known = result.table, result.ends()
            parts.postgres.execute(sql)
            _show(view, before, *result.follow(known))
            for stand in stand_texts(result.app.progress.stands):
                view.say(f"   The batch {stand}", "dim")
            view.pause()
        _compare(parts, view)
    for line in farewell(folder):
        view.say(line)


@contextmanager
def running(parts: Parts, folder: DemoFolder, view: DemoView, *, debug: bool) -> Iterator[Result]:
    """The application, running on Spark, and what it writes."""
    os.environ.update(SERVERS=parts.broker.bootstrap_servers, REGISTRY=parts.registry.url)
    loaded = load(str(folder.shop))
    assert loaded.config is not None
    output = SparkOutput(view.say, folder.log, everything=debug)
    log = KafkaConnection(parts.broker.bootstrap_servers).log()
    app = SparkStreams(loaded.topology, replace(loaded.config, state_dir=folder.state, partitions=2))
    with closing(log), on_spark(app, output, view.waiting):
        log.create_topic(RESULT, 1)
        with view.waiting("Starting the application on Spark, on this machine"), output.inherited():
            app.start()
        yield Result(parts, app, log)


@dataclass(slots=True)
class Result:
    """The result topic as a table, and how far it is."""

    parts: Parts
    app: SparkStreams
    log: KafkaLog
    table: Table = field(default_factory=dict)

    def ends(self) -> Mapping[TopicPartition, int]:
        """The ends of the topics that Debezium writes."""
        return self.log.end_offsets([TopicPartition(topic, 0) for topic in SOURCES])

    def follow(self, known: Mapping[TopicPartition, int]) -> tuple[Table, bool, float]:
        """The result after a change in SQL, whether it is what SQL shows, and the seconds that took.

        ``known``: the ends of the topics before the change; without them all records are new.
        """
        began = time.monotonic()
        wanted = joined(self.parts.postgres)
        while True:
            ends = self.ends()
            read = self.app.progress.total_rows >= sum(ends.values())
            self.table = table_of(self.parts)
            seconds = time.monotonic() - began
            if (ends != known and read and self.table == wanted) or seconds > FOLLOW_SECONDS:
                return self.table, self.table == wanted, seconds
            if self.app.await_termination(0.02):
                return self.table, False, seconds


def joined(postgres: Postgres) -> Table:
    """What SQL's join of the tables shows."""
    return {
        int(row["id"] or 0): (row["customer"] or "", row["city"], Decimal(row["amount"] or 0))
        for row in postgres.select(JOIN)
    }


def table_of(parts: Parts) -> Table:
    """The result topic, read from its beginning: the last record of each key."""
    connection = KafkaConnection(parts.broker.bootstrap_servers)
    last: dict[bytes, bytes | None] = {}
    with closing(connection.log()) as log, closing(connection.reader()) as reader:
        partition = TopicPartition(RESULT, 0)
        end = log.end_offsets([partition])[partition]
        for records in reader.read(OffsetRange(RESULT, 0, 0, end), 10_000):
            last.update(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True))
    if not last:  # and so perhaps no schema of it
        return {}
    key = serdes.int64()
    value = serdes.confluent_avro(parts.registry.url, subject=f"{RESULT}-value")
    sales = {
        key.deserialize(order): value.deserialize(sale) for order, sale in last.items() if sale is not None
    }
    return {order: (sale["customer"], sale["city"], sale["amount"]) for order, sale in sales.items()}


HEAD = ("", "order", "customer", "city", "amount", "")
RIGHT = (False, True, False, False, True, False)


def _show(
    view: DemoView, before: Table, now: Table, equal: bool, seconds: float, after: str = "the COMMIT"
) -> None:
    """The rows that a change made, changed or deleted."""
    lines = [line for line in compared(before, now) if line.kind != "same"]
    if lines:
        view.table(HEAD, lines, RIGHT)
    else:
        view.say("   no row of the result changes")
    view.say(f"   {seconds:.1f} s after {after}" if equal else "   The result is not that of SQL", "dim")


def _compare(parts: Parts, view: DemoView) -> None:
    """Postgres' own join beside the result topic, read again from its beginning."""
    view.say()
    view.say("At the end: SQL's join, and the topic read as a table", "bold")
    view.say(textwrap.indent(JOIN.strip() + ";", "   "), "cyan")
    wanted, found = joined(parts.postgres), table_of(parts)
    rows = []
    for order in sorted(wanted.keys() | found.keys()):
        one, other = wanted.get(order), found.get(order)
        note = "equal" if one == other else "in SQL alone" if other is None else "wrong in the topic"
        rows.append(("", str(order), *map(cell_of, one or other or ()), note))
    for row in aligned(HEAD, rows, RIGHT).splitlines():
        view.say(f"   {row}")
    if wanted == found:
        view.say(f"   The {len(wanted)} rows of SQL are those of the topic.", "bold green")
    else:
        view.say("   The topic differs from SQL.", "bold red")


def farewell(folder: DemoFolder) -> list[str]:
    """What to do next."""
    run, shop = command(), shortest(folder.shop)
    return [
        "",
        f"The application is {shop}: copy it.",
        f"  {run} describe {shop} --plan",
        "docs/debezium.md: the same with a database of yours",
    ]
