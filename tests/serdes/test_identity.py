"""Serdes travel: pickled to other processes, compared and hashed by meaning, named the same everywhere."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Literal

import cloudpickle
import msgspec
import polars as pl
import pytest

from crossstream import serdes
from crossstream.serdes import Serde
from crossstream.serdes.json.plain import InternalJson
from tests.serdes.processes import read_in_another_process


@dataclasses.dataclass(frozen=True)
class Order:
    id: str
    amount: float = 1.0


class Event(msgspec.Struct):
    id: str


MAKERS = {
    "string": lambda: serdes.string(),
    "bytes": lambda: serdes.bytes(),
    "int16": lambda: serdes.int16(),
    "int32": lambda: serdes.int32(),
    "int64": lambda: serdes.int64(),
    "float32": lambda: serdes.float32(),
    "float64": lambda: serdes.float64(),
    "boolean": lambda: serdes.boolean(),
    "uuid": lambda: serdes.uuid(),
    "json": lambda: serdes.json(),
    "json[Order]": lambda: serdes.json(Order),
    "json[Event]": lambda: serdes.json(Event),
    "json[list[Order]]": lambda: serdes.json(list[Order]),
    "json[Order | None]": lambda: serdes.json(Order | None),
    "json[dict[str, int]]": lambda: serdes.json(dict[str, int]),
    "json[Literal['a', 'b']]": lambda: serdes.json(Literal["a", "b"]),
    "json[int]": lambda: serdes.json(int),
    "json[{a: Int64, b: [{c: String}]}]": lambda: serdes.json(
        {"a": pl.Int64, "b": pl.List(pl.Struct({"c": pl.String}))}
    ),
    "left_or_right[string, int64]": lambda: serdes.left_or_right(serdes.string(), serdes.int64()),
    "kept": InternalJson,
}


@pytest.mark.parametrize("name", MAKERS)
def test_serdes_are_values(name: str) -> None:
    serde = MAKERS[name]()
    assert isinstance(serde, Serde)
    assert serde.name == name
    assert serde == MAKERS[name]()
    assert hash(serde) == hash(MAKERS[name]())
    assert [other for other in MAKERS if MAKERS[other]() == serde] == [name]
    for copy in (pickle.loads(pickle.dumps(serde)), cloudpickle.loads(cloudpickle.dumps(serde))):
        assert copy == serde
        assert copy.name == name
    with pytest.raises((AttributeError, TypeError)):
        serde.name = "other"  # type: ignore[misc]


SCRIPT = """
from __future__ import annotations
import dataclasses, enum, pickle, sys
from typing import Annotated, ClassVar, Optional, TypedDict
import cloudpickle, msgspec
from crossstream import serdes
from crossstream.serdes.shipping import dumps

class Status(enum.Enum):
    NEW = "new"

@dataclasses.dataclass
class Order:
    id: str
    status: Status = Status.NEW
    tags: list[str] = dataclasses.field(default_factory=list)

    def renamed(self) -> Order:
        return Order("renamed", self.status)

class Address(TypedDict):
    street: str

class Base(msgspec.Struct, rename="camel", tag=True):
    event_id: int
    at: Optional[Address] = None

class Event(Base, kw_only=True, omit_defaults=True):
    LIMIT: ClassVar[int] = 9
    order: Order
    previous: Optional[Event] = None
    notes: Annotated[list[str], msgspec.Meta(max_length=2)] = msgspec.field(default_factory=list)

    def __post_init__(self):
        if self.event_id > Event.LIMIT:
            raise ValueError("too large")

    def same(self):
        return isinstance(self, Event)

def check(order, event, typed, events, callback):
    assert (typed.name, events.name) == ("json[Order]", "json[list[Event]]")
    first = typed.deserialize(b'{"id":"a"}')
    assert first == order and type(first) is type(order) and first.renamed().id == "renamed"
    series = typed.decode_series(typed.encode_objects([first, None] * 30))
    assert series[0] == {"id": "a", "status": "new", "tags": []}
    text = b'[{"eventId":1,"order":{"id":"a"},"previous":{"eventId":2,"order":{"id":"b"}}}]'
    read = events.deserialize(text)[0]
    assert type(read) is type(event) and read.same() and read.previous.event_id == 2
    assert read == callback(first, read.previous)
    assert events.serialize([read]).startswith(b'[{"type":"Event","eventId":1,'), events.serialize([read])
    assert b'"notes"' not in events.serialize([read])
    assert events.deserialize(events.serialize([read])) == [read]
    try:
        typed.deserialize(b'{"tags":[]}')
    except Exception as error:
        assert "missing required field `id`" in str(error)
    else:
        raise AssertionError("a field is missing")
    order = b'"order":{"id":"a"}'
    for bad in (b'"eventId":1', b'"eventId":10,' + order, b'"eventId":1,"notes":["","",""],' + order):
        try:
            events.deserialize(b"[{%s}]" % bad)
        except Exception as error:
            assert "CS-402" in str(error)
        else:
            raise AssertionError(bad)
    return first, read

if sys.argv[1] == "write":
    values = (
        Order("a"),
        Event(1, order=Order("b")),
        serdes.json(Order),
        serdes.json(list[Event]),
        lambda order, previous: Event(1, order=order, previous=previous),
    )
    check(*values)
    cloudpickle.loads(cloudpickle.dumps(values[2:4]))
    sys.stdout.buffer.write(dumps((check, *values)))
else:
    del Order, Event, Base, Status, Address
    check, *values = pickle.loads(sys.stdin.buffer.read())
    order, event = check(*values)
    print(type(order) is type(values[0]), type(event) is type(values[1]), order.renamed(), end="")
"""


@pytest.mark.slow
def test_classes_of_the_main_file_reach_another_process(tmp_path: Path) -> None:
    """A worker of Spark has another main file; the classes travel with serdes, values and callables."""
    expected = b"True True Order(id='renamed', status=<Status.NEW: 'new'>, tags=[])"
    assert read_in_another_process(tmp_path, SCRIPT) == expected


def test_public_names() -> None:
    assert set(serdes.__all__) >= {
        "Serde",
        "string",
        "bytes",
        "int16",
        "int32",
        "int64",
        "float32",
        "float64",
    }
    assert set(serdes.__all__) >= {"boolean", "uuid", "json"}
    assert "kept" not in serdes.__all__
