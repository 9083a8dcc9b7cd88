"""JSON of a Python type: objects and columns are the same values; what does not fit is told, never cast."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import threading
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calls import find_invalid
from tests.serdes.rows import awkward, plain, unhurried


class Status(enum.Enum):
    NEW = "new"
    PAID = "paid"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


@dataclasses.dataclass
class Item:
    sku: str
    price: float
    gift: bool = False


@dataclasses.dataclass
class Order:
    id: int
    customer: str
    amount: float
    paid: bool
    items: list[Item]
    status: Status
    level: Level
    channel: Literal["web", "shop"]
    at: dt.datetime
    local: Annotated[dt.datetime, msgspec.Meta(tz=False)]
    day: dt.date
    hour: dt.time
    took: dt.timedelta
    token: UUID
    raw: bytes
    total: Decimal
    first: Item
    note: str | None = None
    score: float | None = None
    parent: Item | None = None
    tags: list[str | None] = dataclasses.field(default_factory=lambda: ["none"])
    grid: tuple[tuple[int, ...], ...] = ()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ITEMS = st.builds(Item, TEXT, FLOATS, st.booleans())
# Date and time types of Python end in the year 9999, also after conversion to UTC.
LOCAL = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))
OFFSETS = st.sampled_from([dt.timezone.utc, dt.timezone(dt.timedelta(hours=-5, minutes=-30))])
ORDERS = st.builds(
    Order,
    id=INT64,
    customer=TEXT,
    amount=FLOATS,
    paid=st.booleans(),
    items=st.lists(ITEMS, max_size=3),
    status=st.sampled_from(Status),
    level=st.sampled_from(Level),
    channel=st.sampled_from(["web", "shop"]),
    at=st.builds(lambda at, zone: at.replace(tzinfo=zone), LOCAL, OFFSETS),
    local=LOCAL,
    day=st.dates(),
    hour=st.times(),
    took=st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000)),
    token=st.uuids(),
    raw=st.binary(max_size=5),
    total=st.decimals(-(10**19), 10**19, places=18),
    first=ITEMS,
    note=st.none() | TEXT,
    score=st.none() | FLOATS,
    parent=st.none() | ITEMS,
    tags=st.lists(st.none() | TEXT, max_size=3),
    grid=st.lists(st.lists(INT64, max_size=2).map(tuple), max_size=2).map(tuple),
)


COPIES = st.sampled_from([1, 20])
"""Few and many rows: the ways differ."""


def cell(value: Any) -> Any:
    """A value as a column holds it."""
    if dataclasses.is_dataclass(value):
        return {field.name: cell(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [cell(inner) for inner in value]
    if isinstance(value, enum.Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value


@unhurried
@given(values=st.lists(st.none() | ORDERS, max_size=5), copies=COPIES)
def test_objects_and_columns_are_the_same_both_ways(values: list[Order | None], copies: int) -> None:
    values = values * copies
    serde = serdes.json(Order)
    encoded = serde.encode_objects(values)
    rows = encoded.to_pylist()
    assert rows == [serde.serialize(value) for value in values]
    assert [serde.deserialize(row) for row in rows] == values
    for data in (encoded, awkward(rows)):
        assert serde.decode_objects(data) == values
        series = serde.decode_series(data)
        assert series.dtype == serde.dtype
        assert series.to_list() == [cell(value) for value in values]
    written = serde.encode_series(series)
    assert serde.decode_objects(written) == values
    assert serde.decode_series(written).equals(series, null_equal=True)
    assert serde.decode_objects(serde.encode_series(series[1:-1])) == values[1:-1]
    assert find_invalid(serde, awkward(rows)) == []


@unhurried
@given(
    values=st.lists(st.none() | ORDERS, max_size=5),
    copies=COPIES,
    names=st.sets(st.sampled_from([f.name for f in dataclasses.fields(Order)])),
)
def test_some_fields(values: list[Order | None], copies: int, names: set[str]) -> None:
    values = values * copies
    serde = serdes.json(Order)
    series = serde.decode_series(serde.encode_objects(values), names)
    assert isinstance(series.dtype, pl.Struct)
    assert {field.name for field in series.dtype.fields} == names
    whole = [cell(value) for value in values]
    expected = [None if row is None else {name: row[name] for name in row if name in names} for row in whole]
    assert series.to_list() == expected


def test_column_types() -> None:
    item = pl.Struct({"sku": pl.String, "price": pl.Float64, "gift": pl.Boolean})
    assert serdes.json(Order).dtype == pl.Struct(
        {
            "id": pl.Int64,
            "customer": pl.String,
            "amount": pl.Float64,
            "paid": pl.Boolean,
            "items": pl.List(item),
            "status": pl.String,
            "level": pl.Int64,
            "channel": pl.String,
            "at": pl.Datetime("us", "UTC"),
            "local": pl.Datetime("us"),
            "day": pl.Date,
            "hour": pl.Time,
            "took": pl.Duration("us"),
            "token": pl.String,
            "raw": pl.Binary,
            "total": pl.Decimal(38, 18),
            "first": item,
            "note": pl.String,
            "score": pl.Float64,
            "parent": item,
            "tags": pl.List(pl.String),
            "grid": pl.List(pl.List(pl.Int64)),
        }
    )


@dataclasses.dataclass
class Line:
    sku: str
    count: int
    price: float = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)


LINE = serdes.json(Line)


def test_missing_fields_take_their_defaults_and_unknown_ones_are_ignored() -> None:
    text = b'{"count":2,"sku":"a","more":{"x":[1]}}'
    for rows in (1, 80):
        data = plain([text, b"null", None] * rows)
        assert LINE.decode_objects(data) == [Line("a", 2), None, None] * rows
        series = LINE.decode_series(data)
        assert series.to_list() == [{"sku": "a", "count": 2, "price": 1.0, "tags": []}, None, None] * rows
        assert LINE.decode_series(data, ["price"]).to_list() == [{"price": 1.0}, None, None] * rows


def test_integers_are_floats_too() -> None:
    data = plain([b'{"sku":"a","count":2,"price":3}'] * 20)
    assert LINE.decode_series(data).to_list() == [{"sku": "a", "count": 2, "price": 3.0, "tags": []}] * 20


MISFITS = [
    b'{"sku":"a"}',
    b'{"sku":"a","count":null}',
    b'{"sku":"a","count":1.5}',
    b'{"sku":"a","count":1.0}',
    b'{"sku":"a","count":true}',
    b'{"sku":"a","count":"1"}',
    b'{"sku":"a","count":[1]}',
    b'{"sku":1,"count":1}',
    b'{"sku":true,"count":1}',
    b'{"sku":{},"count":1}',
    b'{"sku":"a","count":1,"price":"1.5"}',
    b'{"sku":"a","count":1,"price":true}',
    b'{"sku":"a","count":1,"price":NaN}',
    b'{"sku":"a","count":1,"tags":"x"}',
    b'{"sku":"a","count":1,"tags":[null]}',
    b'{"sku":"a","count":1}{"sku":"a","count":1}',
    b'{"sku":"a","count":1},{"sku":"a","count":1}',
    b'{"sku":"a","count":1',
    b'{"sku":"\\ud800","count":1}',
    b'{"sku":"\xff","count":1}',
    b"[]",
    b"1",
    b'"a"',
    b"",
]


@pytest.mark.parametrize("bad", MISFITS)
def test_misfits_are_errors_in_both_ways(bad: bytes) -> None:
    """Polars' own decoder casts, drops, or takes apart most of these without a word."""
    for copies in (1, 30):
        data = awkward([b'{"sku":"a","count":1}', None, bad, b"null"] * copies)
        for decode in (LINE.decode_objects, LINE.decode_series):
            with pytest.raises(SerdeError) as caught:
                decode(data)
            assert caught.value.code == "CS-402"
            assert "json[Line]" in str(caught.value)
        expected = [2 + 4 * copy for copy in range(copies)]
        assert [row for row, _ in find_invalid(LINE, data)] == expected
        assert [row for row, _ in find_invalid(LINE, data, way="objects")] == expected
        assert [row for row, _ in find_invalid(LINE, data, way="series")] == expected


def test_only_the_fields_asked_for_are_looked_at() -> None:
    data = plain([b'{"sku":"a","count":"many"}', b'{"sku":"b","count":1}', b'{"sku":'])
    assert LINE.decode_series(data[:2], ["sku"]).to_list() == [{"sku": "a"}, {"sku": "b"}]
    assert [row for row, _ in find_invalid(LINE, data, ["sku"], way="series")] == [2]
    assert [row for row, _ in find_invalid(LINE, data, ["sku"])] == [0, 2]
    with pytest.raises(SerdeError, match="CS-401"):
        LINE.decode_series(data, ["sku", "color"])


class Wide(msgspec.Struct):
    number: int = 0
    at: dt.datetime | None = None
    price: Decimal = Decimal(0)


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"number":9223372036854775808}', Wide(number=2**63)),
        (b'{"number":-99999999999999999999}', Wide(number=-99999999999999999999)),
        (b'{"at":"2024-05-01T12:00:00"}', Wide(at=dt.datetime(2024, 5, 1, 12))),
        (b'{"price":"1e-19"}', Wide(price=Decimal("1e-19"))),
        (b'{"price":"1e30"}', Wide(price=Decimal("1e30"))),
        (b'{"price":"NaN"}', None),
    ],
)
def test_columns_refuse_what_only_objects_hold(text: bytes, value: Wide | None, copies: int) -> None:
    serde = serdes.json(Wide)
    data = plain([b"{}", text] * copies)
    objects = serde.decode_objects(data)
    assert value is None or objects == [Wide(), value] * copies
    with pytest.raises(SerdeError, match="CS-402"):
        serde.decode_series(data)
    bad = [2 * copy + 1 for copy in range(copies)]
    assert find_invalid(serde, data, way="objects") == []
    assert [row for row, _ in find_invalid(serde, data, way="series")] == bad
    assert [row for row, _ in find_invalid(serde, data)] == bad


class Loose(msgspec.Struct):
    id: str
    labels: dict[str, str]
    either: int | str
    anything: Any = None


def test_types_without_column_form_are_for_callables() -> None:
    serde = serdes.json(Loose)
    values = [Loose("a", {"x": "y"}, 1), Loose("b", {}, "two", [1, {}]), None]
    data = serde.encode_objects(values)
    assert serde.decode_objects(data) == values
    assert serde.dtype is None
    assert serde.decode_series(data, ["id"]).to_list() == [{"id": "a"}, {"id": "b"}, None]
    for fields in (None, ["labels"], ["id", "either"], ["anything"]):
        with pytest.raises(SerdeError) as caught:
            serde.decode_series(data, fields)
        assert caught.value.code == "CS-404"
        assert "Loose" in str(caught.value)
        with pytest.raises(SerdeError, match="CS-404"):
            find_invalid(serde, data, fields, "series")
    assert find_invalid(serde, data) == []
    with pytest.raises(SerdeError, match="CS-404"):
        serde.encode_series(pl.Series([{"id": "a"}]))


class Amount(msgspec.Struct):
    id: str
    amount: int | float | None


@pytest.mark.parametrize("copies", [1, 50])
def test_integers_beside_floats_stay_what_the_text_says(copies: int) -> None:
    """A column would be of floats: 1 would be written as 1.0, and integers beyond 2**53 would lose digits."""
    serde = serdes.json(Amount)
    amounts = [b"1", b"1.0", b"9007199254740993", b"null"]
    text = [b'{"id":"a","amount":%b}' % amount for amount in amounts] * copies
    assert serde.dtype is None
    assert serde.encode_objects(serde.decode_objects(plain(text))).to_pylist() == text
    assert serde.decode_series(plain(text), ["id"]).to_list() == [{"id": "a"}] * len(text)
    with pytest.raises(SerdeError, match="field amount of Amount is a union of int and float") as caught:
        serde.decode_series(plain(text), ["amount"])
    assert caught.value.code == "CS-404"


class Departure(msgspec.Struct):
    id: str
    local: dt.time
    at: Annotated[dt.time, msgspec.Meta(tz=True)]


def test_times_of_day_with_an_offset_are_objects() -> None:
    serde = serdes.json(Departure)
    at = dt.time(12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    values = [Departure("a", dt.time(14, 30), at), None]
    data = serde.encode_objects(values)
    assert data[0].as_py() == b'{"id":"a","local":"14:30:00","at":"12:30:00+02:00"}'
    assert serde.decode_objects(data) == values
    assert serde.dtype is None
    assert serde.decode_series(data, ["local"]).to_list() == [{"local": dt.time(14, 30)}, None]
    assert find_invalid(serde, data) == []
    with pytest.raises(SerdeError, match="field at of Departure is a time of day with an offset") as caught:
        serde.decode_series(data)
    assert caught.value.code == "CS-404"


class Color(enum.Enum):
    RED = "red"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Color | None:
        return cls.OTHER if str(value).islower() else None


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Car(msgspec.Struct):
    color: Color
    colors: list[Color] = []
    rights: Rights = Rights.READ


@pytest.mark.parametrize("copies", [1, 50])
def test_enums_that_take_other_values_than_their_members(copies: int) -> None:
    serde = serdes.json(Car)
    data = plain([b'{"color":"mauve","colors":["pink","red"],"rights":3}', b'{"color":"red"}', None] * copies)
    rights = Rights.READ | Rights.WRITE
    objects = [Car(Color.OTHER, [Color.OTHER, Color.RED], rights), Car(Color.RED), None]
    assert serde.decode_objects(data) == objects * copies
    series = serde.decode_series(data)
    assert series.dtype == serde.dtype
    assert series[0] == {"color": "other", "colors": ["other", "red"], "rights": 3}
    assert serde.decode_objects(serde.encode_series(series)) == objects * copies
    assert serde.decode_series(data, ["rights"])[0] == {"rights": 3}
    bad = plain([b'{"color":"red"}', b'{"color":"MAUVE"}'] * copies)
    for way in ("objects", "series"):
        assert [row for row, _ in find_invalid(serde, bad, way=way)] == list(range(1, 2 * copies, 2))


@dataclasses.dataclass
class Node:
    name: str
    children: list[Node]


def test_a_type_inside_itself_has_no_column() -> None:
    serde = serdes.json(Node)
    tree = Node("a", [Node("b", []), Node("c", [Node("d", [])])])
    assert serde.decode_objects(serde.encode_objects([tree])) == [tree]
    assert serde.dtype is None
    with pytest.raises(SerdeError, match="Node inside itself"):
        serde.decode_series(serde.encode_objects([tree]))


class Camel(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    order_id: int
    unit_price: float = 2.0
    class_: str = msgspec.field(name="class", default="x")


def test_names_in_json_are_those_of_columns() -> None:
    serde = serdes.json(Camel)
    values = [Camel(1), Camel(2, 3.5, "y")]
    data = serde.encode_objects(values)
    assert data.to_pylist() == [b'{"orderId":1}', b'{"orderId":2,"unitPrice":3.5,"class":"y"}']
    series = serde.decode_series(data)
    assert series.to_list() == [
        {"orderId": 1, "unitPrice": 2.0, "class": "x"},
        {"orderId": 2, "unitPrice": 3.5, "class": "y"},
    ]
    assert serde.decode_objects(serde.encode_series(series)) == values
    assert serde.decode_series(data, ["class"]).to_list() == [{"class": "x"}, {"class": "y"}]
    unknown = plain([b'{"orderId":1,"color":"red"}'])
    for decode in (serde.decode_objects, serde.decode_series):
        with pytest.raises(SerdeError, match="CS-402"):
            decode(unknown)


class Closed(msgspec.Struct, tag=True):
    id: int


class Opened(msgspec.Struct, tag=True):
    id: int
    items: list[Item]


def test_tags_are_in_the_text_and_not_in_the_column() -> None:
    serde = serdes.json(Opened)
    values = [Opened(1, [Item("a", 1.0)]), None, Opened(2, [])] * 30
    data = serde.encode_objects(values)
    assert data[0].as_py() == b'{"type":"Opened","id":1,"items":[{"sku":"a","price":1.0,"gift":false}]}'
    series = serde.decode_series(data)
    assert series[0] == {"id": 1, "items": [{"sku": "a", "price": 1.0, "gift": False}]}
    assert serde.encode_series(series).to_pylist() == data.to_pylist()
    with pytest.raises(SerdeError, match="CS-402"):
        serde.decode_series(plain([b'{"type":"Closed","id":1,"items":[]}']))


def test_unions_of_structs_are_objects() -> None:
    serde = serdes.json(Closed | Opened)
    values = [Closed(1), Opened(2, []), None]
    data = serde.encode_objects(values)
    assert serde.decode_objects(data) == values
    assert serde.dtype is None
    assert serde.name == "json[Closed | Opened]"
    with pytest.raises(SerdeError, match="CS-401"):
        serde.serialize(Item("a", 1.0))
    with pytest.raises(SerdeError, match="CS-402"):
        serde.deserialize(b'{"type":"Lost","id":1}')


@dataclasses.dataclass
class Sum:
    price: float
    count: int
    total: float = dataclasses.field(init=False, default=0.0)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is negative")
        self.price = round(self.price, 1)


def test_columns_show_what_a_post_init_made() -> None:
    serde = serdes.json(Sum)
    for copies in (1, 80):
        data = plain([b'{"price":1.26,"count":3}', None] * copies)
        objects = serde.decode_objects(data)
        assert objects[0].price == 1.3
        assert serde.decode_series(data)[0]["price"] == 1.3
        assert serde.decode_series(data, ["price"]).to_list() == [{"price": 1.3}, None] * copies
        bad = plain([b'{"price":1.26,"count":-3}', None] * copies)
        for decode in (serde.decode_objects, serde.decode_series):
            with pytest.raises(SerdeError, match="count is negative"):
                decode(bad)


@dataclasses.dataclass
class Share:
    part: int
    whole: int

    def __post_init__(self) -> None:
        self.percent = 100 * self.part // self.whole


def test_whatever_a_post_init_raises_is_a_refusal() -> None:
    serde = serdes.json(Share)
    with pytest.raises(SerdeError, match="CS-402"):
        serde.deserialize(b'{"part":1,"whole":0}')
    for copies in (1, 80):
        for attempt in (
            lambda: serde.encode_objects([{"part": 1, "whole": 0}] * copies),  # noqa: B023
            lambda: serde.serialize({"part": 1, "whole": 0}),
        ):
            with pytest.raises(SerdeError, match="by zero") as caught:
                attempt()
            assert caught.value.code == "CS-401"


class Bounded(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=1, le=5)]
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$", max_length=3)] = "A"
    pair: Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)] = msgspec.field(
        default_factory=lambda: [0, 0]
    )


@pytest.mark.parametrize(
    "bad", [b'{"count":0}', b'{"count":6}', b'{"count":1,"code":"a"}', b'{"count":1,"pair":[1]}']
)
def test_constraints_hold_in_both_ways(bad: bytes) -> None:
    serde = serdes.json(Bounded)
    good = b'{"count":5,"code":"ABC","pair":[1,2]}'
    assert serde.decode_series(plain([good])).to_list() == [{"count": 5, "code": "ABC", "pair": [1, 2]}]
    for decode in (serde.decode_objects, serde.decode_series):
        with pytest.raises(SerdeError, match="CS-402"):
            decode(plain([good, bad] * 40))


class Address(TypedDict):
    street: str
    number: int | None


def test_typed_dicts_are_dicts() -> None:
    serde = serdes.json(Address)
    values: list[Any] = [{"street": "a", "number": 1}, {"street": "b", "number": None}, None]
    data = serde.encode_objects(values)
    assert serde.decode_objects(data) == values
    assert serde.decode_series(data).to_list() == values
    assert serde.decode_objects(serde.encode_series(serde.decode_series(data))) == values


@pytest.mark.parametrize("copies", [1, 100])
def test_typed_dicts_are_written_in_declared_order(copies: int) -> None:
    serde = serdes.json(Address)
    given = [{"number": 1, "street": "a"}, None] * copies
    expected = [b'{"street":"a","number":1}', None] * copies
    data = serde.encode_objects(given)
    assert data.to_pylist() == expected
    assert serde.dtype == pl.Struct({"street": pl.String, "number": pl.Int64})
    assert serde.encode_series(serde.decode_series(data)).to_pylist() == expected
    with pytest.raises(SerdeError, match="CS-401"):
        serde.encode_objects([*given, {"number": 1}])


class Bag(msgspec.Struct):
    tags: set[str]
    extra: Any = None


def test_what_has_no_json_beside_a_set_is_told() -> None:
    serde = serdes.json(Bag)
    good = Bag({"b", "a"}, msgspec.Raw(b"1.00"))
    assert serde.serialize(good) == b'{"tags":["a","b"],"extra":1.00}'
    with pytest.raises(SerdeError, match=r"CS-403.*lock"):
        serde.encode_objects([good, Bag({"a"}, threading.Lock())] * 50)


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        (int, [1, None, -5], pl.Int64),
        (float, [1.5, None, 2.0], pl.Float64),
        (str, ["a", "", None, 'x"\n'], pl.String),
        (bool, [True, False], pl.Boolean),
        (list[str], [["a", "b"], [], None], pl.List(pl.String)),
        (list[int | None], [[1, None], [], None], pl.List(pl.Int64)),
        (list[list[float]], [[[1.0], []], None], pl.List(pl.List(pl.Float64))),
        (int | None, [1, None], pl.Int64),
        (dt.date, [dt.date(2024, 5, 1), None], pl.Date),
        (Decimal, [Decimal("1.5"), None], pl.Decimal(38, 18)),
        (Literal["a", "b"], ["a", None], pl.String),
    ],
)
def test_types_that_are_no_structs(kind: Any, values: list[Any], dtype: Any, copies: int) -> None:
    serde = serdes.json(kind)
    data = serde.encode_objects(values * copies)
    assert serde.dtype == dtype
    assert serde.decode_objects(data) == values * copies
    series = serde.decode_series(data)
    assert series.dtype == dtype
    assert series.to_list() == values * copies
    assert serde.decode_series(data, ["ignored"]).to_list() == values * copies
    assert serde.decode_objects(serde.encode_series(series)) == values * copies


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "1"),
        (int, True),
        (int, 1.0),
        (str, 1),
        (list[str], ["a", 1]),
        (Item, Line("a", 1)),
    ],
)
def test_values_of_another_type(kind: Any, value: Any) -> None:
    serde = serdes.json(kind)
    for values in ([value], [None, value] * 30):
        with pytest.raises(SerdeError) as caught:
            serde.encode_objects(values)
        assert caught.value.code == "CS-401"
        assert type(value).__name__ in str(caught.value)
        assert caught.value.next


class Range(msgspec.Struct):
    low: Annotated[int, msgspec.Meta(ge=0)]
    high: float = 0.0


class Place(NamedTuple):
    row: int


class Basket(TypedDict):
    items: list[Item]
    place: Place


@dataclasses.dataclass
class Even:
    n: int
    label: str | int = ""

    def __post_init__(self) -> None:
        if isinstance(self.n, str):
            raise TypeError("n is text")


def _text_in(made: Any, name: str) -> Any:
    """An object whose field was set later, where its class does not check it."""
    setattr(made, name, "5")
    return made


UNREADABLE: list[tuple[Any, Any, Any]] = [
    (Item, Item("a", 1.5), Item("a", "5")),  # type: ignore[arg-type]
    (Item, Item("a", 1), Item("a", None)),  # type: ignore[arg-type]
    (Line, Line("a", 2), Line("a", 2.0)),  # type: ignore[arg-type]
    (Range, Range(0), Range(-1)),
    (list[Range], [Range(1)], [Range(1), Range("x")]),  # type: ignore[arg-type]
    (Place, Place(1), Place("x")),  # type: ignore[arg-type]
    (Basket, {"items": [Item("a", 1.5)], "place": Place(1)}, {"items": [Item(1, 1.5)], "place": Place(1)}),  # type: ignore[arg-type]
    (Even, Even(2, 3), _text_in(Even(2), "n")),
]


@pytest.mark.parametrize(("kind", "good", "bad"), UNREADABLE)
@pytest.mark.parametrize("beside", [0, 1, 100])
def test_instances_that_could_not_be_read_again(kind: Any, good: Any, bad: Any, beside: int) -> None:
    serde = serdes.json(kind)
    around = [good, None] * beside
    assert serde.decode_objects(serde.encode_objects(around)) == around
    with pytest.raises(SerdeError, match=r"CS-401(.|\n)*could not be read again") as caught:
        serde.encode_objects([*around, bad, *around])
    assert repr(bad)[:60] in str(caught.value)
    with pytest.raises(SerdeError, match="CS-401"):
        serde.serialize(bad)


class Narrow(msgspec.Struct):
    status: Status | None = None
    level: Level = Level.LOW
    channel: Literal["web", "shop"] = "web"
    token: UUID = UUID(int=0)
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    code: Annotated[str, msgspec.Meta(max_length=2)] = ""
    sizes: Annotated[list[int], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [1])


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("status", "gone"),
        ("level", 2),
        ("channel", "phone"),
        ("token", "none"),
        ("count", -1),
        ("code", "abc"),
        ("sizes", []),
    ],
)
@pytest.mark.parametrize("copies", [1, 100])
def test_columns_with_what_the_type_does_not_allow(field: str, bad: Any, copies: int) -> None:
    """What an expression makes: a column knows no members of an Enum, and no limits."""
    serde = serdes.json(Narrow)
    sound = serde.decode_series(serde.encode_objects([Narrow()] * copies))
    assert serde.decode_objects(serde.encode_series(sound)) == [Narrow()] * copies
    spoilt = sound.to_frame("row").unnest("row")[-1:].to_dicts()[0] | {field: bad}
    column = pl.concat([sound, pl.Series([spoilt], dtype=sound.dtype)])
    with pytest.raises(SerdeError, match=rf"CS-401(.|\n)*could not be read again(.|\n)*{field}"):
        serde.encode_series(column)


@pytest.mark.parametrize("copies", [1, 100])
def test_what_only_objects_hold_is_written(copies: int) -> None:
    """Of a wire struct, that a column is made of, neither is taken."""
    made = [Line("a", 10**20), None] * copies
    assert serdes.json(Line).decode_objects(serdes.json(Line).encode_objects(made)) == made
    at = [Wide(at=dt.datetime(2026, 1, 1))] * copies
    assert serdes.json(Wide).decode_objects(serdes.json(Wide).encode_objects(at)) == at


def test_a_dict_that_fits_is_taken() -> None:
    assert LINE.deserialize(LINE.serialize({"sku": "a", "count": 1})) == Line("a", 1)
    assert (
        LINE.encode_objects([{"sku": "a", "count": 1}, Line("b", 2)] * 20)[1]
        .as_py()
        .startswith(b'{"sku":"b"')
    )
    with pytest.raises(SerdeError, match="CS-401"):
        LINE.serialize({"sku": "a", "count": "1"})


def test_columns_of_other_types_are_fitted_where_nothing_is_lost() -> None:
    for copies in (1, 80):
        narrow = pl.DataFrame(
            {"count": [1, 2], "sku": ["a", "b"], "price": [1, 2], "tags": [[], None]},
            schema={"count": pl.Int8, "sku": pl.Categorical, "price": pl.Int32, "tags": pl.List(pl.Null)},
        ).to_struct()
        series = pl.concat([narrow[:1]] * copies)
        assert LINE.decode_objects(LINE.encode_series(series)) == [Line("a", 1, 1.0, [])] * copies


@pytest.mark.parametrize(
    ("column", "code"),
    [
        (pl.Series([{"sku": "a", "count": 1.0, "price": 1.0, "tags": []}]), "CS-401"),
        (pl.Series([{"sku": 1, "count": 1, "price": 1.0, "tags": []}]), "CS-401"),
        (
            pl.Series(
                [{"sku": "a", "count": 2**63, "price": 1.0, "tags": []}],
                dtype=pl.Struct(
                    {"sku": pl.String, "count": pl.UInt64, "price": pl.Float64, "tags": pl.List(pl.String)}
                ),
            ),
            "CS-403",
        ),
        (pl.Series([{"sku": "a", "count": 1, "price": 1.0, "tags": [], "color": "red"}]), "CS-401"),
        (pl.Series([{"sku": "a", "count": None, "price": 1.0, "tags": []}]), "CS-401"),
        (pl.Series([{"sku": "a", "price": 1.0, "tags": []}]), "CS-401"),
        (pl.Series([{"sku": "a", "count": 1, "price": 1.0, "tags": ["x", None]}]), "CS-401"),
        (pl.Series(["a"]), "CS-401"),
    ],
)
def test_columns_that_could_not_be_read_again(column: pl.Series, code: str) -> None:
    for copies in (1, 80):
        with pytest.raises(SerdeError) as caught:
            LINE.encode_series(pl.concat([column] * copies))
        assert caught.value.code == code
        assert caught.value.next


def test_items_that_could_not_be_read_again() -> None:
    column = pl.Series([[1.0], [2.0, None]])
    with pytest.raises(SerdeError, match="CS-401"):
        serdes.json(list[float]).encode_series(column)
    optional = serdes.json(list[float | None])
    assert optional.encode_series(column)[1].as_py() == b"[2.0,null]"


def test_null_rows_are_no_null_fields() -> None:
    series = pl.Series([None, {"sku": "a", "count": 1, "price": 1.0, "tags": []}] * 50)
    assert LINE.encode_series(series).null_count == 50
    assert LINE.encode_series(pl.Series([None, None])).null_count == 2


class Pair(NamedTuple):
    a: int
    b: str


class Flat(msgspec.Struct, array_like=True):
    a: int


@pytest.mark.parametrize("kind", [Pair, Flat, dict[str, int], Any, tuple[int, str], set[int], int | str])
def test_other_types_are_objects_only(kind: Any) -> None:
    serde = serdes.json(kind)
    assert serde.dtype is None
    with pytest.raises(SerdeError, match="CS-404"):
        serde.decode_series(plain([b"[]"]))


@pytest.mark.parametrize("kind", [42, "Order", pl.Int64(), pl.String(), [int], lambda: None])
def test_what_is_no_type(kind: Any) -> None:
    with pytest.raises(SerdeError) as caught:
        serdes.json(kind)
    assert caught.value.code == "CS-404"
    assert caught.value.next


@dataclasses.dataclass
class Shop:
    id: int
    region: str = "eu"
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Chain:
    shops: list[Shop]
    named: dict[str, Shop]
    main: Shop | None = None
    pair: tuple[Shop, int] | None = None
    kind: str = "chain"


@pytest.mark.parametrize("rows", [1, 100])
def test_defaults_are_written_as_of_objects_that_were_made(rows: int) -> None:
    """Equal objects have equal bytes, which keys are compared by, and those that a column gives."""
    shops, chains = serdes.json(Shop), serdes.json(Chain)
    text, full = b'{"id":1}', b'{"id":1,"region":"eu","tags":[]}'
    read = shops.decode_objects(plain([text] * rows))
    assert shops.encode_objects(read).to_pylist() == [shops.serialize(Shop(1))] * rows == [full] * rows
    assert shops.encode_series(shops.decode_series(plain([text] * rows))).to_pylist() == [full] * rows
    assert shops.serialize(shops.deserialize(text)) == shops.serialize({"id": 1}) == full
    nested = b'{"shops":[%b],"named":{"x":%b},"main":%b,"pair":[%b,2]}' % (text, text, text, text)
    made = Chain([Shop(1)], {"x": Shop(1)}, Shop(1), (Shop(1), 2))
    assert (
        chains.encode_objects(chains.decode_objects(plain([nested] * rows))).to_pylist()
        == [chains.serialize(made)] * rows
    )


@dataclasses.dataclass
class Pass:
    until: dt.datetime


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("until", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00"])
def test_times_that_a_column_would_move_out_of_the_calendar(until: str, rows: int) -> None:
    serde = serdes.json(Pass)
    text = [b'{"until":"%b"}' % until.encode()] * rows
    assert serde.encode_objects(serde.decode_objects(plain(text))).to_pylist() == text
    with pytest.raises(SerdeError, match="before the year 1 or after 9999") as caught:
        serde.decode_series(plain(text))
    assert caught.value.code == "CS-402"
