"""Dead letters that are too large for their topic: they fit it, and say what was cut."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.errors import SinkError
from crossstream.records import REASON, Header
from crossstream.task.dead_letters import HEADERS_CUT, KEY_CUT, SPILLED, VALUE_CUT, Letter

PLACE = [
    ("crossstream.operator", b"orders"),
    ("crossstream.topic", b"orders"),
    ("crossstream.partition", b"3"),
    ("crossstream.offset", b"99"),
]
LEAST = 600
"""Bytes that the headers with the place, and those about what was cut, have room in."""

sizes = st.one_of(st.none(), st.integers(0, 3_000))
bodies = sizes.map(lambda size: None if size is None else b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=5), bodies), max_size=4)


def letter(key: bytes | None, value: bytes | None, own: Sequence[Header] = (), why: str = "bad") -> Letter:
    return Letter(key, value, 7, own, (REASON, why.encode()), PLACE)


@given(bodies, bodies, headers, st.text(max_size=2_000), st.integers(LEAST, 5_000))
@example(b"k", b"v" * 5_000, [], "bad", 1_000)
@example(b"k" * 5_000, b"v", [("h", b"h" * 5_000)], "é" * 5_000, LEAST)
def test_any_letter_fits_any_topic(
    key: bytes | None, value: bytes | None, own: list[tuple[str, bytes | None]], why: str, limit: int
) -> None:
    """Whatever is large about it; what is left of each part is its beginning, and what fits stays as it is."""
    whole = letter(key, value, own, why)
    cut = whole.within(limit, None)
    assert cut.size <= limit
    assert (cut is whole) == (whole.size <= limit)
    assert [header for header in cut.all_headers if header in PLACE] == PLACE
    assert list(cut.headers) == own[: len(cut.headers)]
    assert why.startswith((cut.reason[1] or b"").decode())
    marks = dict(cut.place)
    for name, before, after in ((KEY_CUT, key, cut.key), (VALUE_CUT, value, cut.value)):
        assert (before is None) == (after is None)
        assert before is None or before.startswith(after or b"")
        assert (name in marks) == (before != after)
        assert before == after or marks[name] == b"%d" % len(before or b"")
    assert (HEADERS_CUT in marks) == (len(cut.headers) < len(own))


def test_what_kafka_says_is_dropped_before_anything_is_cut() -> None:
    errors = [
        (f"__streams.errors.{name}", b"e" * size) for name, size in (("message", 300), ("stacktrace", 900))
    ]
    whole = replace(letter(b"k", b"v" * 500, [("trace", b"t")]), errors=errors)
    assert whole.within(whole.size, None) is whole
    for limit, left in ((whole.size - 1, errors[:1]), (whole.size - 1_000, [])):
        cut = whole.within(limit, None)
        assert cut == replace(whole, errors=left)
        assert cut.size <= limit
    assert whole.within(600, None).value != whole.value


def test_of_a_large_value_nothing_else_is_cut() -> None:
    cut = letter(b"k" * 100, b"v" * 5_000, [("trace", b"t")], "r" * 100).fitting(2_000)
    assert (cut.key, cut.headers, cut.reason[1]) == (b"k" * 100, [("trace", b"t")], b"r" * 100)
    assert 1_000 < len(cut.value or b"") < 2_000


def test_the_file_has_all_of_the_record(tmp_path: Path) -> None:
    whole = letter(b"\xff", b"v" * 5_000, [("h", b"\x00" * 2_000), ("none", None)], "not JSON")
    cut = whole.within(1_000, str(tmp_path / "spilled"))
    [file] = (tmp_path / "spilled").iterdir()
    assert dict(cut.place)[SPILLED] == str(file).encode()
    assert file.name.startswith("orders-3-99-")
    kept = json.loads(file.read_bytes())
    assert base64.b64decode(kept.pop("key")) == whole.key
    assert base64.b64decode(kept.pop("value")) == whole.value
    assert [(name, value and base64.b64decode(value)) for name, value in kept.pop("headers")] == whole.headers
    place = {"operator": "orders", "topic": "orders", "partition": "3", "offset": "99"}
    assert kept == {**place, "reason": "not JSON", "timestamp": 7}


def test_a_batch_that_is_repeated_writes_the_same_file(tmp_path: Path) -> None:
    """Also where the reason is another one: what an exception says may have the address of an object in it."""
    for reason in ("<object at 0x1>", "<object at 0x2>"):
        letter(b"k", b"v" * 5_000, why=reason).within(1_000, str(tmp_path))
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_bytes())["reason"] == "<object at 0x2>"


def test_letters_of_one_record_have_files_of_their_own(tmp_path: Path) -> None:
    for value in (b"v" * 5_000, b"w" * 5_000):
        letter(b"k", value).within(1_000, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_records_without_a_place_and_topics_with_long_names(tmp_path: Path) -> None:
    """Those that the clock lets go come from no topic; a name of a file may have 255 bytes, that of a topic 249."""
    Letter(None, b"v" * 5_000, 7, [], (REASON, b"bad"), PLACE[:1]).within(1_000, str(tmp_path))
    long = [
        ("crossstream.topic", b"t" * 249),
        ("crossstream.partition", b"1"),
        ("crossstream.offset", b"9" * 19),
    ]
    Letter(None, b"v" * 5_000, 7, [], (REASON, b"bad"), long).within(1_000, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError) as caught:
        letter(b"k", b"v" * 5_000).within(1_000, str(tmp_path / "file" / "spilled"))
    assert caught.value.code == "CS-665"
    assert str(tmp_path / "file") in str(caught.value)


def test_the_folder_of_the_setting_is_one_path_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cs.DeadLetter("bad", spill="spilled").spill == str(tmp_path / "spilled")


@pytest.mark.parametrize("spill", ["", 1, "s3://bucket/spilled"])
def test_a_folder_that_is_no_path(spill: object) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        cs.DeadLetter("bad", spill=spill)
    assert caught.value.code == "CS-201"
