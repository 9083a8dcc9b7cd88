"""Schemas that somebody registered, and registries that do not answer as they should: a bad record, and no hang."""

from __future__ import annotations

import gzip
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crossstream import SerdeError, serdes
from crossstream.serdes.avro import resolve as avro_resolve
from crossstream.serdes.avro import schema as avro_schema
from crossstream.serdes.avro.read import decoded
from crossstream.serdes.avro.resolve import resolved
from crossstream.serdes.avro.schema import parse
from crossstream.serdes.avro.serde import reader_of
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.registry.client import RegistrySettings, connection

OWN: Any = {"type": "record", "name": "Own", "fields": [{"name": "id", "type": "long"}]}


def record(name: str, **types: Any) -> Any:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in types.items()],
    }


def doubled(levels: int, wrap: Any = lambda one: one, **leaf: Any) -> Any:
    """A record of two records of two records …"""
    made = record("R0", **leaf)
    for level in range(1, levels + 1):
        made = record(f"R{level}", a=wrap(made), b=wrap(f"R{level - 1}"))
    return made


def mutual(count: int) -> Any:
    """Records all of which have all."""
    known: set[int] = set()

    def of(number: int) -> Any:
        if number in known:
            return f"M{number}"
        known.add(number)
        return record(f"M{number}", **{f"f{other}": ["null", of(other)] for other in range(count)})

    return of(0)


def chain(length: int) -> Any:
    """Records in each other, in a text that is flat."""
    parts = [record(f"C{at}", **({"next": ["null", f"C{at - 1}"]} if at else {})) for at in range(length)]
    return ["null", *parts]


def defaults(levels: int) -> Any:
    made = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "long", "default": 1}]}
    for level in range(1, levels + 1):
        fields = [
            {"name": "a", "type": [made, "null"], "default": {}},
            {"name": "b", "type": [f"R{level - 1}", "null"], "default": {}},
        ]
        made = {"type": "record", "name": f"R{level}", "fields": fields}
    return made


def deep(levels: int) -> Any:
    return {"type": "array", "items": deep(levels - 1)} if levels else "long"


ATTACKS = {
    "itself": record("T", n="T", m="T"),
    "doubled": doubled(30),
    "doubled numbers": doubled(30, x="long"),
    "doubled nullable": doubled(30, lambda one: ["null", one], x="long"),
    "doubled lists": doubled(30, lambda one: {"type": "array", "items": one}, x="long"),
    "doubled maps": doubled(30, lambda one: {"type": "map", "values": one}, x="long"),
    "many fields": doubled(12, x="null"),
    "each in each": mutual(30),
    "a chain": chain(5000),
    "deep": deep(300),
    "very deep": None,
    "defaults": defaults(30),
    "a default inside itself": {
        "type": "record",
        "name": "T",
        "fields": [{"name": "n", "type": ["T", "null"], "default": {}}],
    },
    "a large union": [record(f"U{at}") for at in range(5000)],
    "many digits": {"type": "bytes", "logicalType": "decimal", "precision": 10**9},
    "a long fixed": {"type": "fixed", "name": "F", "size": 2**62},
    "no object": {"type": "record", "name": "A", "fields": ["x"]},
    "odd symbols": {"type": "enum", "name": "E", "symbols": [[1]]},
    "odd aliases": {"type": "record", "name": "A", "aliases": 7, "fields": []},
}
TEXTS = {name: json.dumps(schema) for name, schema in ATTACKS.items()} | {
    "very deep": '{"type":"array","items":' * 100_000 + '"long"' + "}" * 100_000
}


def inside(text: str, way: str) -> str:
    return {
        "alone": text,
        "in an array": f'{{"type":"array","items":{text}}}',
        "in a field": f'{{"type":"record","name":"Own","fields":[{{"name":"id","type":"long"}},'
        f'{{"name":"other","type":{text}}}]}}',
        "in a union": f'["null",{text}]' if not text.startswith("[") else text,
    }[way]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, way) for name in TEXTS for way in ("alone", "in a field")),
        *(
            (name, way)
            for name in ("itself", "doubled", "no object")
            for way in ("in an array", "in a union")
        ),
    ],
)
def test_a_schema_that_somebody_registered_is_read_or_refused_at_once(name: str, way: str) -> None:
    begin = time.process_time()
    text = inside(TEXTS[name], way)
    for reader_text, names in ((json.dumps(OWN), None), (text, None), (text, frozenset({"id"}))):
        if reader_text == text and code_of(lambda: parse(text)) == "CS-404":
            continue
        reader = reader_of(text, (), reader_text, (), names)
        if isinstance(reader, Reader):
            assert decoded(reader, pa.array([b""], pa.large_binary()))[1]
            if reader_text != text:
                decoded(reader, pa.array([b"\2" * 20, b"\2\2\0" * 20], pa.large_binary()))
    assert time.process_time() - begin < 20


def code_of(call: Callable[[], object]) -> str | None:
    """The code of the `SerdeError` that is raised, if any is."""
    try:
        call()
    except SerdeError as error:
        return error.code
    return None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", TEXTS)
def test_such_a_schema_as_the_declared_one(name: str) -> None:
    begin = time.process_time()
    if code_of(lambda: serdes.avro(TEXTS[name])) != "CS-404":
        serde = serdes.avro(TEXTS[name])
        for value in ({}, None, [], b"", 7):
            assert code_of(lambda value=value: serde.serialize(value)) in (None, "CS-401")  # type: ignore[misc]
        assert code_of(lambda: serde.deserialize(b"")) == "CS-402"
    assert time.process_time() - begin < 20


def test_fields_without_bytes_in_lists_that_no_one_reads() -> None:
    empty = doubled(10, x="null")  # 2047 fields
    lists = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": empty}}}
    reader = reader_of(json.dumps(record("Own", other=lists, id="long")), (), json.dumps(OWN), (), None)
    assert isinstance(reader, Reader)
    begin = time.process_time()
    some = b"\x80\x01" + b"\x02\0" * 64 + b"\0"
    column, faults = decoded(reader, pa.array([b"\x10" + some * 8 + b"\0\x0e"], pa.large_binary()))
    assert not faults
    assert column is not None
    assert time.process_time() - begin < 5


def test_two_schemas_that_are_too_large_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_resolve, "_MOST_STEPS", 1000)
    theirs, ours = (json.dumps([record(f"{name}{at}", x="long") for at in range(100)]) for name in "AB")
    assert reader_of(theirs, (), ours, (), None) == "the schemas are too large to compare"


def test_a_schema_of_too_many_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_schema, "MOST_TYPES", 100)
    with pytest.raises(SerdeError, match=r"(?s)^\[CS-404\].*more than 100 types"):
        parse(json.dumps(record("Wide", **{f"f{at}": "long" for at in range(200)})))


def test_a_pair_of_types_that_does_not_fit_is_refused_wherever_it_is() -> None:
    # the second branch has A as well: its reader, half made when A was refused, would read nothing of it
    a, other = record("A", b=["null", record("B", a=["null", "A"])], x="string"), record("Other", b="B")
    theirs = record("Event", body=["null", a, other])
    ours = record(
        "Event", body=["null", record("A", b=["null", record("B", a=["null", "A"])], x="int"), other]
    )
    reader = resolved(parse(json.dumps(theirs)), parse(json.dumps(ours)))
    good, bad = b"\x04\x00", b"\x04\x02\x00\x02z"
    _, faults = decoded(reader, pa.array([good, bad], pa.large_binary()))
    assert list(faults) == [1]
    assert "is string for the writer" in faults[1]


def registered(schema: str, kind: str = "AVRO") -> tuple[str, int]:
    """A registry with a schema, and its id."""
    url = f"mock://hostile-{hash((schema, kind)) & 0xFFFFFFFF}"
    return url, connection(RegistrySettings.of(url)).register("orders-value", kind, schema)  # type: ignore[arg-type]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["itself", "doubled", "doubled nullable", "no object"])
def test_records_of_such_a_schema_are_bad_and_take_no_neighbour(name: str) -> None:
    url, id = registered(TEXTS[name])
    serde = serdes.confluent_avro(url, OWN)
    good = serde.serialize({"id": 7})
    assert good is not None
    hostile = b"\0" + id.to_bytes(4, "big") + b"\x0e"
    data = pa.array([good, hostile, good], pa.large_binary())
    assert [row for row, _ in find_invalid(serde, data)] == [1]
    assert serde.decode_objects(data.take(pa.array([0, 2]))) == [{"id": 7}, {"id": 7}]


# -- registries that do not answer as they should ---------------------------------------------------------


Answer = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def drip(sock: socket.socket) -> None:
    sock.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    for _ in range(200):
        time.sleep(0.05)
        sock.sendall(b" ")


def drip_in_the_head(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(200):
        time.sleep(0.05)
        sock.sendall(b"x")


def without_end(sock: socket.socket) -> None:
    sock.sendall(HEAD + b"\r\n")
    while True:
        sock.sendall(b" " * 2**16)


def packed(sock: socket.socket) -> None:
    body = gzip.compress(b" " * 2**20)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n"
    sock.sendall(head + body)


def said(body: bytes) -> Answer:
    def answer(sock: socket.socket) -> None:
        sock.sendall(HEAD + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)

    return answer


@contextmanager
def registry_that(answer: Answer) -> Iterator[RegistrySettings]:
    """A registry that gives this answer to all requests."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(2**16)
                answer(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield RegistrySettings.of({"url": url, "patience": "500 ms"})
        server.shutdown()


REFERENCES = b'{"schema": "\\"int\\"", "subject": "a", "version": 1, "id": 1, "references": ['
CIRCLE = REFERENCES + b'{"name": "a", "subject": "a", "version": 1}]}'


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (drip, "CS-420"),
        (drip_in_the_head, "CS-420"),
        (lambda sock: time.sleep(3), "CS-420"),
        (without_end, "CS-402"),
        (packed, "CS-402"),
        (said(b"<html>"), "CS-402"),
        (said(b'{"schema": 7}'), "CS-402"),
        (said(b"[]"), "CS-402"),
    ],
)
def test_a_registry_is_cut_at_its_patience_and_at_a_size(answer: Answer, code: str) -> None:
    with registry_that(answer) as settings:
        begin = time.monotonic()
        for _ in range(2):
            assert code_of(lambda: connection(settings).schema_of(7)) == code
        assert code_of(lambda: connection(settings).latest("a-value")) in ("CS-420", "CS-421")
        assert time.monotonic() - begin < 20


def test_schemas_that_refer_to_each_other_in_a_circle_or_without_end() -> None:
    with registry_that(said(CIRCLE)) as settings:
        assert connection(settings).schema_of(1).references == (("a", '"int"'),)
    asked = iter(range(10**9))

    def another(sock: socket.socket) -> None:
        name = f"a{next(asked)}".encode()
        said(REFERENCES + b'{"name": "' + name + b'", "subject": "' + name + b'", "version": 1}]}')(sock)

    with registry_that(another) as settings:
        assert code_of(lambda: connection(settings).schema_of(1)) in ("CS-402", "CS-420")


# -- JSON Schemas -----------------------------------------------------------------------------------------


def doubled_json(keyword: str, levels: int = 30) -> Any:
    definitions: Any = {"d0": {"type": "object"}}
    for level in range(1, levels + 1):
        definitions[f"d{level}"] = {keyword: [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    return {"$defs": definitions, "$ref": f"#/$defs/d{levels}"}


AGAIN = {"$ref": "#/$defs/x"}
TWICE = {"properties": {"a": AGAIN}}
JSON_ATTACKS = {
    "doubled allOf": doubled_json("allOf"),
    "doubled oneOf": doubled_json("oneOf"),
    "by level": {"$defs": {"x": {"allOf": [TWICE, TWICE]}}, "$ref": "#/$defs/x"},
    "by item": {
        "$defs": {"x": {"allOf": [{"items": AGAIN, "additionalProperties": AGAIN}] * 2}},
        "$ref": "#/$defs/x",
    },
    "by anchor": {
        "$defs": {
            f"d{at}": {"$anchor": f"d{at}", "allOf": [{"$ref": f"#d{at - 1}"}] * 2 if at else []}
            for at in range(30)
        },
        "$ref": "#d29",
    },
    "itself": {"$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}, "$ref": "#/$defs/x"},
    "no type": {"type": "nonsense"},
    "a file that is not there": {"$ref": "http://127.0.0.1:9/x.json"},
    "very deep": None,
}  # fmt: skip


def nested(levels: int) -> Any:
    return {"a": nested(levels - 1), "b": [1]} if levels else {}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", JSON_ATTACKS)
def test_a_json_schema_that_hangs_or_cannot_be_used_makes_bad_records(name: str) -> None:
    text = json.dumps(JSON_ATTACKS[name]) if JSON_ATTACKS[name] else '{"not":' * 5000 + "{}" + "}" * 5000
    url, id = registered(text, "JSON")
    serde = serdes.confluent_json(url, validate=True)
    good = b"\0\0\0\0\0{}"  # the frame inside the application
    hostile = b"\0" + id.to_bytes(4, "big") + json.dumps(nested(40)).encode()
    begin = time.process_time()
    data = pa.array([good, hostile, None, good], pa.large_binary())
    assert [row for row, _ in find_invalid(serde, data, way="objects")] == [1]
    assert time.process_time() - begin < 10


def test_json_schemas_of_everyday_size_are_checked() -> None:
    tree = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                    "right": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                    "value": {"type": "integer"},
                },
                "required": ["value"],
            }
        },
        "$ref": "#/$defs/node",
    }
    events = {
        "oneOf": [
            {"properties": {"kind": {"const": at}, "tree": {"$ref": "#/$defs/node"}}} for at in range(60)
        ],
        "$defs": tree["$defs"],
    }
    deep: Any = None
    for _ in range(100):
        deep = {"left": deep, "right": None, "value": 7}
    for schema, value in ((tree, deep), (events, {"kind": 3, "tree": {"value": 7}})):
        url, id = registered(json.dumps(schema), "JSON")
        serde = serdes.confluent_json(url, validate=True)
        head = b"\0" + id.to_bytes(4, "big")
        assert serde.deserialize(head + json.dumps(value).encode()) == value
        wrong = json.dumps(value).replace("7", '"x"').encode()
        assert (
            code_of(lambda head=head, wrong=wrong, serde=serde: serde.deserialize(head + wrong)) == "CS-402"
        )  # type: ignore[misc]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["itself", "doubled", "doubled nullable", "each in each", "no object"])
def test_events_of_debezium_with_such_a_schema_are_bad(name: str) -> None:
    from crossstream.serdes.debezium.avro import AvroEvents
    from crossstream.serdes.debezium.settings import Debezium

    row = serdes.json({"id": pl.Int64})
    begin = time.process_time()
    for text in (TEXTS[name], f'{{"type":"record","name":"E","fields":[{{"name":"op","type":"string"}},'
                 f'{{"name":"after","type":{TEXTS[name]}}}]}}'):  # fmt: skip
        url, id = registered(text)
        settings = Debezium(row, row, ("id",), registry=RegistrySettings.of(url))  # type: ignore[arg-type]
        events = AvroEvents(settings, frozenset({"id"}))
        data = b"\0" + id.to_bytes(4, "big") + b"\2c\2"
        assert code_of(lambda: events.events(pa.array([data], pa.large_binary()))) == "CS-402"  # noqa: B023
        events.is_other(data)
    assert time.process_time() - begin < 10
