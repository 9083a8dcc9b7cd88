"""`crossstream query`: rows of a state folder as tables, JSON lines and CSV."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import msgspec
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli.arguments import make_parser
from crossstream.cli.query import _get, as_text, in_columns, parse_time
from crossstream.query.by_time import ByTime
from crossstream.query.text import parse_key, to_plain
from tests.cli.cases import call, saved_state

EITHER = serdes.left_or_right(serdes.string(), serdes.int64())
BATCHES = [
    [("apple", {"n": 1, "tags": ["red"]}), ("pear", {"n": 2}), ("plum", {"n": 3})],
    [("plum", None), ("apple", {"n": 10, "tags": None}), ("quince", {"n": 4, "note": "tart"})],
]


@pytest.fixture
def state(tmp_path):
    saved_state(tmp_path, BATCHES)
    return tmp_path


def test_stores_are_listed(capsys, state):
    outcome = call(capsys, "query", state)
    assert outcome.code == 0
    assert outcome.out.splitlines()[-1].split() == ["things", "key-value", "string", "json", "3"]
    assert outcome.err == "application shop, partitions: 2, batch 1, 2023-11-14 22:13:21 UTC\n"
    assert call(capsys, "query", state, "--format", "json").lines == [
        {"store": "things", "kind": "key-value", "key": "string", "value": "json", "rows": 3}
    ]


def test_all_rows_as_a_table(capsys, state):
    assert call(capsys, "query", state, "things").out == (
        "key      n  tags  note\n"
        "------  --  ----  ----\n"
        "apple   10  null\n"
        "pear     2\n"
        "quince   4        tart\n"
    )


def test_rows_as_json_and_csv(capsys, state):
    rows = call(capsys, "query", state, "things", "all", "--format", "json").lines
    assert rows[0] == {"key": "apple", "value": {"n": 10, "tags": None}}
    assert call(capsys, "query", state, "things", "get", "quince", "--format", "csv").out == (
        "key,n,note\nquince,4,tart\n"
    )


@pytest.mark.parametrize(
    ("operation", "keys"),
    [
        (["get", "pear"], ["pear"]),
        (["range"], ["apple", "pear", "quince"]),
        (["range", "b"], ["pear", "quince"]),
        (["range", "apple", "pear"], ["apple", "pear"]),
        (["range", "", "pear"], ["apple", "pear"]),
        (["prefix", "q"], ["quince"]),
        (["all", "--max", "2"], ["apple", "pear"]),
        (["all", "--as-of", "0"], ["apple", "pear", "plum"]),
    ],
)
def test_what_can_be_asked(capsys, state, operation, keys):
    rows = call(capsys, "query", state, "things", *operation, "--format", "json").lines
    assert [row["key"] for row in rows] == keys


def test_a_missing_row_is_told_by_the_exit_code(capsys, state):
    outcome = call(capsys, "query", state, "things", "get", "plum")
    assert (outcome.code, outcome.out, outcome.err) == (1, "", "no row 'plum' in things\n")
    outcome = call(capsys, "query", state, "things", "prefix", "x")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "no rows in things\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["things", "get"], "'get' is not a query"),
        (["things", "all", "x"], "'all x' is not"),
        (["things", "dance"], "'dance' is not"),
        (["things", "all", "--as-of-time", "0"], "--as-of-time works with get only"),
        (["--as-of", "0"], "--as-of works with a store only"),
        (["--as-of-time", "0"], "--as-of-time works with a store only"),
        (["--max", "1"], "--max works with a store only"),
        (["--format", "csv"], "--format csv works with a store only"),
    ],
)
def test_wrong_usage_exits_with_2(capsys, state, argv, said):
    outcome = call(capsys, "query", state, *argv)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"[CS-281] {said}" in outcome.err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["nothing"], "CS-710"),
        (["things", "--as-of", "7"], "CS-713"),
        (["things", "get", "apple", "--as-of-time", "0"], "CS-711"),
        (["things", "get", "apple", "--as-of-time", "soon"], "CS-281"),
    ],
)
def test_what_cannot_be_asked(capsys, state, argv, code):
    outcome = call(capsys, "query", state, *argv)
    assert outcome.code == (2 if code == "CS-281" else 1)
    assert f"[{code}]" in outcome.err


def test_only_the_state_is_required(capsys):
    outcome = call(capsys, "query")
    assert outcome.code == 2
    assert outcome.err.endswith("required: STATE_DIR\n")


def test_a_file_is_no_state(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    for store in ([], ["offers"]):
        outcome = call(capsys, "query", tmp_path / "file", *store)
        assert outcome.code == 1
        assert "[CS-713] there is no state here" in outcome.err


def test_records_by_time_have_no_versions_and_are_shown_up_to_a_number(capsys):
    rows = [(1, "x"), (2, "y"), (3, "z")]
    store = SimpleNamespace(
        name="clicks", key=serdes.string(), by_time=ByTime("records"), fetch=lambda key: rows
    )
    query = ["query", "state", "clicks", "get", "a", "--format", "json", "--max", "2"]
    assert _get(store, "a", make_parser().parse_args(query)) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == ["x", "y"]
    with pytest.raises(cs.ConfigError, match="--as-of-time works with versioned stores only"):
        _get(store, "a", make_parser().parse_args([*query, "--as-of-time", "0"]))


def test_versions(capsys, tmp_path):
    saved_state(tmp_path, BATCHES, history_retention="1 hour")
    at = ["query", tmp_path, "things", "get", "apple", "--format", "json", "--as-of-time"]
    assert call(capsys, *at, "500").lines[0]["value"] == {"n": 1, "tags": ["red"]}
    assert call(capsys, *at, "1970-01-01T00:00:01Z").lines[0]["value"]["n"] == 10
    assert call(capsys, "query", tmp_path).out.splitlines()[-1].split()[1] == "versioned"


@pytest.mark.parametrize(
    ("serde", "text", "key"),
    [
        (serdes.string(), "7", "7"),
        (serdes.int64(), "-7", -7),
        (serdes.float64(), "1e3", 1000.0),
        (serdes.boolean(), "True", True),
        (serdes.bytes(), "ab", b"ab"),
        (serdes.uuid(), "123e4567-e89b-12d3-a456-426614174000", UUID("123e4567-e89b-12d3-a456-426614174000")),
        (serdes.json(), '{"a": 1}', {"a": 1}),
        (serdes.json(), "plain", "plain"),
        (serdes.json(int), "7", 7),
        (serdes.json(str), "123", "123"),
        (serdes.json(str), '"123"', "123"),
        (serdes.json(), '"true"', "true"),
        (serdes.json(), "null", "null"),
        (serdes.json(Decimal), "19.50", Decimal("19.50")),
        (serdes.bytes(), '{"base64":"/wE="}', b"\xff\x01"),
        (serdes.bytes(), "7", b"7"),
        (serdes.bytes(), '{"base64":7}', b'{"base64":7}'),
        (EITHER, '["scarf",null]', cs.LeftOrRight(left="scarf")),
        (EITHER, "[null, 7]", cs.LeftOrRight(right=7)),
        (serdes.left_or_right(serdes.json(), serdes.bytes()), '["7",null]', cs.LeftOrRight(left="7")),
        (
            serdes.left_or_right(serdes.json(), serdes.bytes()),
            '[null,{"base64":"/wE="}]',
            cs.LeftOrRight(right=b"\xff\x01"),
        ),
    ],
)
def test_keys_are_typed_as_their_serde_wants_them(serde, text, key):
    assert parse_key(serde, text) == key


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (serdes.int64(), "x"),
        (serdes.boolean(), "maybe"),
        (serdes.json(int), '"x"'),
        (serdes.json(int), "null"),
        (None, "x"),
        (EITHER, "scarf"),
        (EITHER, "[null,null]"),
        (EITHER, '[null,"7"]'),
        (EITHER, '["a"]'),
    ],
)
def test_what_is_no_key_is_refused(serde, text):
    with pytest.raises(cs.ConfigError) as caught:
        parse_key(serde, text)
    assert caught.value.code == "CS-281"


@pytest.mark.parametrize(
    ("serde", "key"),
    [
        (serdes.bytes(), b"\xff\x01"),
        (EITHER, cs.LeftOrRight(left="scarf")),
        (EITHER, cs.LeftOrRight(right=7)),
        (serdes.json(str), "123"),
        (serdes.json(), True),
        (serdes.json(), "x"),
    ],
)
def test_a_key_is_found_as_it_is_shown(capsys, tmp_path, serde, key):
    saved_state(tmp_path, [[(key, {"n": 1})]], key=serde)
    shown = call(capsys, "query", tmp_path, "things", "all", "--format", "json").lines[0]["key"]
    outcome = call(capsys, "query", tmp_path, "things", "get", as_text(shown), "--format", "json")
    assert [row["key"] for row in outcome.lines] == [shown]


def test_where_a_key_is_json_and_text_json_is_meant_and_quotes_make_it_a_text(capsys, tmp_path):
    saved_state(tmp_path, [[(True, {"n": 1}), ("true", {"n": 2})]], key=serdes.json())
    get = ["query", tmp_path, "things", "get"]
    assert call(capsys, *get, "true", "--format", "json").lines[0]["value"] == {"n": 1}
    assert call(capsys, *get, '"true"', "--format", "json").lines[0]["value"] == {"n": 2}


def test_prefixes_of_keys_of_either_table(capsys, tmp_path):
    keys = [cs.LeftOrRight(left="scarf"), cs.LeftOrRight(left="socks"), cs.LeftOrRight(right=7)]
    saved_state(tmp_path, [[(key, {"n": 1}) for key in keys]], key=EITHER)
    found = call(capsys, "query", tmp_path, "things", "prefix", '["sc",null]', "--format", "json").lines
    assert [row["key"] for row in found] == [["scarf", None]]


def test_times():
    assert parse_time("1500") == 1500
    assert parse_time("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    assert parse_time("2026-01-31") == datetime(2026, 1, 31)


class Point(msgspec.Struct):
    x: int
    y: bytes


def test_values_of_any_kind_are_shown():
    assert to_plain(Point(1, b"\x00")) == {"x": 1, "y": "AA=="}
    assert to_plain(b"\xff") == {"base64": "/w=="}
    assert to_plain(datetime(2026, 1, 1)) == "2026-01-01T00:00:00"
    assert [as_text(value) for value in ("a", None, True, {"a": [1]})] == ["a", "null", "true", '{"a":[1]}']


def test_columns_of_values():
    assert in_columns([("a", {"x": 1, "key": 2}), ("b", {"y": 3})]) == {
        "key": ["a", "b"],
        "x": [1, ""],
        "value.key": [2, ""],
        "y": ["", 3],
    }
    assert in_columns([("a", {"key": 1, "value.key": 2})]) == {
        "key": ["a"],
        "value.value.key": [1],
        "value.key": [2],
    }
    assert in_columns([("a", {"x": 1}), ("b", 7)]) == {"key": ["a", "b"], "value": [{"x": 1}, 7]}
