"""Records what Debezium's connector writes while SQL changes a real Postgres; see README.md beside this file.

python -m tests.data.debezium.record [SCENARIO …]
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from crossstream.dev import servers
from crossstream.dev.cdc import Parts, Postgres
from crossstream.dev.cdc import parts as started
from tests.data.debezium.recordings import Recorded

HERE = Path(__file__).parent
JSON = dict(servers.JSON)
JSON_SCHEMAS = {**JSON, "key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
ROWS_ONLY = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}
FLAGGED = {
    **ROWS_ONLY,
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "transforms.unwrap.add.fields": "op,table,source.lsn,source.ts_ms",
}
AVRO_NAMES = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
FORMATS: Mapping[str, Mapping[str, str]] = {
    "json": JSON,
    "json-schemas": JSON_SCHEMAS,
    "rows": {**JSON, **ROWS_ONLY},
    "rows-flagged": {**JSON, **FLAGGED},
    "avro": AVRO_NAMES,
    "avro-rows-flagged": {**AVRO_NAMES, **FLAGGED},
}
FEW = ("json", "json-schemas", "rows-flagged", "avro")


@dataclass
class Recording:
    """The servers, and the connectors of one scenario."""

    parts: Parts
    database: str
    prefixes: list[str] = field(default_factory=list)
    ends: int = 0

    def sql(self, text: str) -> None:
        self.parts.postgres.execute(text, self.database)

    def catch_up(self) -> None:
        """Returns when every connector has written all changes of this moment."""
        self.ends += 1
        self.sql(f"INSERT INTO fin VALUES ({self.ends})")
        for prefix in self.prefixes:
            wait(partial(self._has_come, f"{prefix}.public.fin"))

    def _has_come(self, topic: str) -> bool:
        return sum(record.value is not None for record in self.records(topic)) >= self.ends

    def records(self, topic: str) -> list[Recorded]:
        return read(self.parts.broker.bootstrap_servers, topic)

    def has_stopped(self, connector: str) -> bool:
        now = self.rest(f"/{connector}/status")
        return now["connector"]["state"] == "STOPPED" and not now["tasks"]

    def rest(self, path: str, method: str = "GET", body: object = None) -> Any:
        return servers.request(f"{self.parts.connect.url}/connectors{path}", method, body)


@dataclass(frozen=True)
class Scenario:
    setup: str
    """Before the connectors start: these rows are snapshot."""
    change: str | Callable[[Recording], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    formats: tuple[str, ...] = tuple(FORMATS)
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More recordings: format and other settings."""


def letters(seed: int, length: int = 2300) -> str:
    """Text that Postgres does not keep in the row."""
    return "".join(chr(97 + (seed * 7 + i // 100) % 26) for i in range(length))


CHANGES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount numeric(10, 2), note text, at timestamptz);
CREATE TABLE lines (order_id bigint, line smallint, article text, PRIMARY KEY (order_id, line));
CREATE TABLE settings (name text PRIMARY KEY, value text);
CREATE TABLE journal (said text);
ALTER TABLE journal REPLICA IDENTITY FULL;
ALTER TABLE lines REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'London'), (2, 'Grace', NULL), (3, 'Edsger', 'Nuenen');
INSERT INTO orders VALUES (10, 1, 12.50, 'first', '2026-01-02 03:04:05.678901+00'), (11, 2, -0.01, NULL, NULL);
INSERT INTO lines VALUES (10, 1, 'pen'), (10, 2, 'ink');
INSERT INTO settings VALUES ('a', '1'), ('b', '2');
INSERT INTO journal VALUES ('begun');
"""
CHANGES_THEN = """
INSERT INTO customers VALUES (4, 'Barbara', 'Boston'), (5, 'Jürgen „x“ \U0001f600', 'Köln');
UPDATE customers SET city = 'Arlington' WHERE id = 2;
INSERT INTO orders VALUES (12, 4, 99999999.99, 'big', '2026-05-06 07:08:09+02');
UPDATE orders SET amount = amount * 2, note = NULL WHERE id = 10;
UPDATE customers SET id = 30 WHERE id = 3;
UPDATE orders SET id = 110, customer_id = 30 WHERE id = 11;
DELETE FROM customers WHERE id = 1;
INSERT INTO customers VALUES (1, 'Ada again', 'Paris');
UPDATE lines SET line = line + 10 WHERE order_id = 10;
DELETE FROM lines WHERE line = 12;
INSERT INTO lines VALUES (12, 1, 'paper'), (12, 2, NULL);
BEGIN;
INSERT INTO orders VALUES (13, 5, 1, 'in a transaction', '1969-12-31 23:59:59.999+00');
UPDATE orders SET note = 'twice' WHERE id = 13;
UPDATE customers SET name = 'Barbara L.' WHERE id = 4;
COMMIT;
BEGIN; INSERT INTO orders VALUES (14, 1, 1, 'rolled back', NULL); ROLLBACK;
UPDATE customers SET id = 31 WHERE id = 30;
UPDATE customers SET id = 30 WHERE id = 31;
DELETE FROM customers WHERE id = 5;
TRUNCATE settings;
INSERT INTO settings VALUES ('b', '3'), ('c', '4');
INSERT INTO journal VALUES ('goes on');
UPDATE journal SET said = 'ended' WHERE said = 'begun';
DELETE FROM journal WHERE said = 'goes on';
"""

DOCUMENT = "id int PRIMARY KEY, title text, body text, data bytea, tags text[], numbers int[], more jsonb, short text"
EXTERNAL = ", ".join(
    f"ALTER COLUMN {name} SET STORAGE EXTERNAL" for name in ("body", "data", "tags", "numbers", "more")
)


def toasted(table: str) -> str:
    values = ", ".join(
        f"({i}, 'title {i}', '{letters(i)}', '{letters(i + 1)}', ARRAY['{letters(i + 2)}', 'x'], "
        f"""(SELECT array_agg(n) FROM generate_series(1, 600) n), '{{"a": "{letters(i + 3)}"}}', 'short')"""
        for i in (1, 2, 3)
    )
    return f"INSERT INTO {table} VALUES {values};\n"


TOAST = "".join(
    f"CREATE TABLE {table} ({DOCUMENT}); ALTER TABLE {table} {EXTERNAL};\n"
    f"ALTER TABLE {table} REPLICA IDENTITY {identity};\n{toasted(table)}"
    for table, identity in (
        ("documents", "DEFAULT"),
        ("full_documents", "FULL"),
        ("moved_documents", "DEFAULT"),
    )
)
TOAST_THEN = "".join(
    f"UPDATE {table} SET title = 'new title' WHERE id = 1;\n"
    f"UPDATE {table} SET body = '{letters(9)}' WHERE id = 2;\n"
    f"UPDATE {table} SET short = NULL, data = NULL WHERE id = 2;\n"
    f"UPDATE {table} SET title = 'again' WHERE id = 2;\n"
    f"UPDATE {table} SET tags = ARRAY['small'], body = 'small' WHERE id = 1;\n"
    f"UPDATE {table} SET title = 'last' WHERE id = 1;\n"
    for table in ("documents", "full_documents")
)
TOAST_THEN += (
    "UPDATE moved_documents SET id = 4 WHERE id = 3; UPDATE moved_documents SET title = 'x' WHERE id = 4;"
)

TYPES = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE types (
  id int PRIMARY KEY, b boolean, i2 smallint, i4 int, i8 bigint, s serial, o oid, r real, d double precision,
  n numeric, n10_2 numeric(10, 2), n38_0 numeric(38, 0), m money,
  t text, v varchar(20), c char(5), ci citext, x xml, lt ltree,
  bin bytea, bit1 bit(1), bits bit(12), varbits bit varying(20),
  da date, ti time, ti3 time(3), tz timetz, ts timestamp, ts0 timestamp(0), ts3 timestamp(3), tsz timestamptz,
  iv interval, u uuid, j json, jb jsonb, h hstore, e mood, p positive,
  ip inet, net cidr, mac macaddr, mac8 macaddr8,
  pt point, r4 int4range, r8 int8range, rn numrange, rt tsrange, rtz tstzrange, rd daterange, tsv tsvector,
  a_i int[], a_t text[], a_n numeric(6, 2)[], a_d date[], a_ts timestamp[], a_tz timestamptz[], a_u uuid[],
  a_b boolean[], a_j jsonb[], a_f double precision[], a_i8 bigint[], a_e mood[], a_by bytea[]);
"""
FULL_ROW = r"""
INSERT INTO types VALUES (1, true, -32768, 2147483647, 9223372036854775807, 5, 4294967295, 1.5, 0.1,
  1234567890.0987654321, 12345678.90, 12345678901234567890123456789012345678, '1234.56',
  'text "quoted" \ ' || chr(10) || 'line', 'varchar', 'ab', 'CiText', '<a b="1">x</a>', 'top.sub',
  '\x00ff10', B'1', B'101010101010', B'1011',
  '2026-02-28', '12:34:56.789012', '23:59:59.999', '01:02:03.456789+02',
  '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05', '2026-01-02 03:04:05.678', '2026-01-02 03:04:05.678901+05',
  '1 year 2 months 3 days 4 hours 5 minutes 6.789 seconds',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"b": 1,  "a": [1, null, "x"]}', '{"b": 1.50, "a": {"c": true}}',
  'k => v, n => NULL', 'very happy', 7,
  '192.168.1.5/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05',
  '(1.5,-2.25)', '[1,10)', '(1,5]', '[1.5,2.5]', '[2026-01-01 00:00, 2026-02-01 00:00)',
  '[2026-01-01 00:00+00, 2026-02-01 00:00+00)', '[2026-01-01,2026-02-01)', 'a fat cat',
  '{1,NULL,3}', '{"a b",NULL,""}', '{1.50,NULL,-2.25}', '{2026-01-01,1969-12-31}',
  '{"2026-01-02 03:04:05.678901"}', '{"2026-01-02 03:04:05.678901+00"}',
  '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{t,f,NULL}', ARRAY['{"a": 1}'::jsonb], '{1.5,NULL}',
  '{9223372036854775807,-1}', '{sad,ok}', ARRAY['\x00ff'::bytea]);
"""
BORDER_ROWS = """
INSERT INTO types (id, s) VALUES (2, 1);
INSERT INTO types (id, s, i2, i4, i8, n, n10_2, n38_0, m, t, bin, da, ti, tz, ts, tsz, iv, a_i, a_t, r, d)
  VALUES (3, -1, 0, -2147483648, -9223372036854775808, -0.0000000001, -99999999.99, -1, '-0.01', '', '',
  '0001-01-01', '00:00:00', '00:00:00+00', '0001-01-01 00:00:00', '1900-06-15 12:00:00.000001+00', '-1 day',
  '{}', '{}', 'NaN', 'Infinity');
INSERT INTO types (id, s, n, da, ts, tsz, ti, r, d, iv, pt) VALUES (4, 0, 100, '9999-12-31',
  '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '24:00:00', 3.4028235e38, 5e-324,
  '1 microsecond', '(0,0)');
"""
SPECIAL_ROWS = """
INSERT INTO types (id, s, n, da, ts, tsz) VALUES (6, 0, 'NaN', 'infinity', 'infinity', '-infinity');
INSERT INTO types (id, s, n) VALUES (7, 0, 1e40), (8, 0, 0.00000000000000000000000000000000000000001);
"""

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text, age int, gone text);
INSERT INTO people VALUES (1, 'Ada', 36, 'x'), (2, 'Grace', 40, 'y');
"""
SCHEMA_THEN = """
INSERT INTO people VALUES (3, 'Edsger', 50, 'z');
ALTER TABLE people ADD COLUMN city text;
INSERT INTO people VALUES (4, 'Barbara', 60, NULL, 'Boston');
UPDATE people SET city = 'London' WHERE id = 1;
ALTER TABLE people DROP COLUMN gone;
INSERT INTO people VALUES (5, 'Tony', 70, 'Oxford');
UPDATE people SET name = 'Grace H.' WHERE id = 2;
ALTER TABLE people ALTER COLUMN age TYPE bigint;
UPDATE people SET age = 5000000000 WHERE id = 3;
ALTER TABLE people ADD COLUMN member boolean NOT NULL DEFAULT true, ADD COLUMN level int DEFAULT 3;
INSERT INTO people VALUES (6, 'Leslie', 80, 'Palo Alto', false);
ALTER TABLE people RENAME COLUMN city TO town;
UPDATE people SET town = 'New York' WHERE id = 2;
DELETE FROM people WHERE id = 4;
"""

ACCOUNTS = """
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint, version int);
INSERT INTO accounts SELECT n, 100, 0 FROM generate_series(1, 40) n;
"""
SIGNALS = "CREATE TABLE signals (id text PRIMARY KEY, type text, data text);\n"


@contextmanager
def busy(recording: Recording) -> Any:
    """Changes accounts all the time in the block: about 100 rows a second, with deletes, inserts and new keys."""
    stop = threading.Event()
    round = [0]

    def work() -> None:
        while not stop.wait(0.15):
            n = round[0] = round[0] + 1
            at = n * 7 % 40 + 1
            recording.sql(
                f"BEGIN; UPDATE accounts SET balance = balance - {n}, version = version + 1 WHERE id = {at};"
                f"UPDATE accounts SET balance = balance + {n}, version = version + 1 WHERE id = {at % 40 + 1}; COMMIT;"
                f"DELETE FROM accounts WHERE id = {n * 11 % 40 + 1};"
                f"INSERT INTO accounts VALUES ({n * 11 % 40 + 1}, {n}, {n}) ON CONFLICT DO NOTHING;"
                + (f"UPDATE accounts SET id = id + 100 WHERE id = {n * 3 % 40 + 1};" if n % 5 == 0 else "")
                + (f"DELETE FROM accounts WHERE id = {n * 3 % 40 + 1};" if n % 7 == 0 else "")
            )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def snapshots(kind: str) -> Callable[[Recording], None]:
    def change(recording: Recording) -> None:
        with busy(recording):
            time.sleep(1)
            data = json.dumps({"data-collections": ["public.accounts"], "type": kind})
            recording.sql(f"INSERT INTO signals VALUES ('{kind}', 'execute-snapshot', '{data}')")
            time.sleep(4)
        recording.catch_up()
        time.sleep(2)

    return change


def changes_meanwhile(recording: Recording) -> None:
    """The connectors start while rows change."""
    time.sleep(2)


def replay(recording: Recording) -> None:
    """The connectors stop, and read again from an older position: what came since comes twice."""
    recording.catch_up()
    before = {prefix: recording.rest(f"/{prefix}/offsets") for prefix in recording.prefixes}
    recording.sql(
        "UPDATE accounts SET balance = 1 WHERE id = 1; DELETE FROM accounts WHERE id = 2;"
        "INSERT INTO accounts VALUES (50, 5, 5); UPDATE accounts SET id = 60 WHERE id = 3;"
        "UPDATE accounts SET balance = 2 WHERE id = 1; DELETE FROM accounts WHERE id = 50;"
        "INSERT INTO accounts VALUES (2, 22, 22);"
    )
    recording.catch_up()
    for prefix in recording.prefixes:
        recording.rest(f"/{prefix}/stop", "PUT")
        wait(partial(recording.has_stopped, prefix))
        recording.rest(f"/{prefix}/offsets", "PATCH", before[prefix])
        recording.rest(f"/{prefix}/resume", "PUT")
    recording.sql("UPDATE accounts SET balance = 3 WHERE id = 1;")
    time.sleep(3)
    recording.ends += 1  # the one before comes twice


ONE_PARTITION = {
    "topic.creation.groups": "one",
    "topic.creation.one.include": ".*[.]settings",
    "topic.creation.one.partitions": "1",
    "topic.creation.one.replication.factor": "1",
}
TRUNCATE = """
CREATE TABLE options (name text PRIMARY KEY, value int);
INSERT INTO options SELECT 'before ' || n, n FROM generate_series(1, 6) n;
"""
TRUNCATE_THEN = """
INSERT INTO options VALUES ('c', 1), ('d', 1);
TRUNCATE options;
INSERT INTO options SELECT 'after ' || n, n FROM generate_series(1, 6) n;
INSERT INTO options VALUES ('d', 2);
"""
WITH_SIGNALS = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "5"}
SCENARIOS: Mapping[str, Scenario] = {
    "changes": Scenario(CHANGES, CHANGES_THEN),
    "transactions": Scenario(
        CHANGES,
        CHANGES_THEN,
        {
            "provide.transaction.metadata": "true",
            "heartbeat.interval.ms": "300",
            "tombstones.on.delete": "false",
        },
        FEW,
    ),
    "truncate": Scenario(TRUNCATE, TRUNCATE_THEN, formats=("json", "avro")),
    "toast": Scenario(TOAST, TOAST_THEN, formats=FEW),
    "types": Scenario(
        TYPES + FULL_ROW + BORDER_ROWS,
        "UPDATE types SET id = id + 10 WHERE id = 1;" + FULL_ROW.replace("(1, true", "(5, false"),
        formats=FEW,
        variants={
            "json-schemas-other": {
                **JSON_SCHEMAS,
                "decimal.handling.mode": "string",
                "time.precision.mode": "connect",
                "binary.handling.mode": "base64",
                "interval.handling.mode": "string",
                "hstore.handling.mode": "map",
            },
            "json-other": {
                **JSON,
                "decimal.handling.mode": "double",
                "time.precision.mode": "isostring",
                "binary.handling.mode": "hex",
                "interval.handling.mode": "string",
            },
            "json-schemas-micros": {**JSON_SCHEMAS, "time.precision.mode": "microseconds"},
            "json-schemas-nanos": {**JSON_SCHEMAS, "time.precision.mode": "nanoseconds"},
            "json-unknown": {**JSON, "include.unknown.datatypes": "true"},
            "avro-other": {
                **AVRO_NAMES,
                "decimal.handling.mode": "string",
                "time.precision.mode": "connect",
                "interval.handling.mode": "string",
                "hstore.handling.mode": "map",
            },
        },
    ),
    "special": Scenario(
        TYPES + FULL_ROW,
        SPECIAL_ROWS,
        formats=("json-schemas", "avro"),
        variants={"json-schemas-other": {**JSON_SCHEMAS, "decimal.handling.mode": "string"}},
    ),
    "schema": Scenario(SCHEMA, SCHEMA_THEN, formats=FEW),
    "snapshot": Scenario(ACCOUNTS, changes_meanwhile, formats=("json", "rows-flagged", "avro")),
    "incremental": Scenario(
        ACCOUNTS + SIGNALS, snapshots("incremental"), WITH_SIGNALS, ("json", "rows-flagged", "avro")
    ),
    "blocking": Scenario(
        ACCOUNTS + SIGNALS, snapshots("blocking"), WITH_SIGNALS, ("json", "rows-flagged", "avro")
    ),
    "replay": Scenario(ACCOUNTS, replay, {"flush.lsn.source": "false"}, ("json", "rows-flagged", "avro")),
}


def record(name: str, parts: Parts) -> None:
    scenario, here = SCENARIOS[name], HERE / name
    here.mkdir(exist_ok=True)
    parts.postgres.execute(f"CREATE DATABASE {name}")
    recording = Recording(parts, name)
    recording.sql("CREATE TABLE fin (id int PRIMARY KEY);" + scenario.setup)
    formats = {**{format: FORMATS[format] for format in scenario.formats}, **scenario.variants}
    bootstrap = parts.broker.bootstrap_servers

    def connectors() -> None:
        for format, settings in formats.items():
            own = {"skipped.operations": "none", "topic.creation.default.partitions": "2", **ONE_PARTITION}
            parts.capture(f"{name}.{format}", name, {**own, **scenario.settings, **settings})
            recording.prefixes.append(f"{name}.{format}")

    if scenario.change is changes_meanwhile:
        with busy(recording):
            connectors()
            changes_meanwhile(recording)
    else:
        connectors()
        if isinstance(scenario.change, str):
            recording.sql(scenario.change)
        else:
            scenario.change(recording)
    recording.catch_up()
    time.sleep(1)  # the end of the transaction, and heartbeats
    for prefix in recording.prefixes:
        recording.rest(f"/{prefix}", "DELETE")
    ids = set()
    for format in formats:
        records = [
            record
            for record in read(bootstrap, rf"(.*\.)?{name}\.{format}(\..*)?")
            if not record.topic.endswith((".public.fin", ".public.signals"))
        ]
        if format.startswith("avro"):
            sides = [side for record in records for side in (record.key, record.value) if side]
            assert all(side[0] == 0 for side in sides)
            ids |= {int.from_bytes(side[1:5], "big") for side in sides}
        text = "".join(map(line, records))
        pack(here / f"{format}.jsonl.gz", text)
        print(f"{name}/{format}: {len(records)} records, {len(text)} bytes", flush=True)
    pack(here / "tables.json.gz", json.dumps(tables(parts.postgres, name), indent=1, ensure_ascii=False))
    if ids:
        schemas = {str(id): servers.request(f"{parts.registry.url}/schemas/ids/{id}") for id in sorted(ids)}
        pack(here / "schemas.json.gz", json.dumps(schemas, indent=1))


def tables(postgres: Postgres, database: str) -> dict[str, Any]:
    """Each table at the end: its columns with their types, its key, and its rows: each value in Postgres' text."""
    found: dict[str, Any] = {}
    query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    for row in postgres.select(query, database):
        table = str(row["relname"])
        if table in ("fin", "signals"):
            continue
        columns = postgres.select(
            "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute "
            f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            database,
        )
        key = postgres.select(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey) "
            f"WHERE indrelid = '{table}'::regclass AND indisprimary ORDER BY array_position(indkey::int2[], attnum)",
            database,
        )
        found[table] = {
            "columns": {column["attname"]: column["type"] for column in columns},
            "key": [column["attname"] for column in key],
            "rows": postgres.select(f"SELECT * FROM {table} ORDER BY 1", database),
            "json": [
                json.loads(r["row"] or "")
                for r in postgres.select(
                    f"SELECT row_to_json(t) AS row FROM {table} t ORDER BY t.*::text", database
                )
            ]
            if database not in ("types", "special")
            else None,
        }
    return found


def read(bootstrap: str, topic: str) -> list[Recorded]:
    """All records of a topic, or of the topics that match a pattern, each topic partition in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "recording", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(timeout=30).topics
        names = [name for name in sorted(found) if re.fullmatch(topic, name)]
        partitions = [
            TopicPartition(name, partition) for name in names for partition in sorted(found[name].partitions)
        ]
        return [record for partition in partitions for record in _records(consumer, partition)]
    except KafkaException as error:
        if not error.args[0].retriable():
            raise
    finally:
        consumer.close()
    time.sleep(0.2)  # a topic that was just made
    return read(bootstrap, topic)


def _records(consumer: Consumer, partition: TopicPartition) -> Iterator[Recorded]:
    message: Any
    low, high = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([TopicPartition(partition.topic, partition.partition, low)])
    while low < high:
        message = consumer.poll(30)
        if message is None or message.error():
            raise RuntimeError(f"{partition}: {message and message.error()}")
        low = message.offset() + 1
        yield Recorded(
            partition.topic,
            partition.partition,
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            message.headers() or [],
        )


def line(record: Recorded) -> str:
    packed = asdict(record)
    packed["key"], packed["value"] = encode(record.key), encode(record.value)
    packed["headers"] = [[name, encode(value)] for name, value in record.headers]
    return json.dumps(packed) + "\n"


def pack(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def wait(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds} s")
        time.sleep(0.2)


def main(names: list[str]) -> None:
    with started() as parts:
        for name in names or SCENARIOS:
            began = time.monotonic()
            record(name, parts)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
