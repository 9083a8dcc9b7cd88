"""`crossstream topics`: JSON lines to and from file topics."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from crossstream.filetopics import FileTopics
from tests.cli.cases import Outcome, call, start
from tests.filetopics.topics import numbered
from tests.filetopics.topics import write as write_rows

RECORDS = [
    {"key": "a", "value": {"n": 1}, "timestamp": 5, "headers": {"source": "test", "none": None}},
    {"key": "b", "value": None, "timestamp": 6},
    {"key": None, "value": [1, "zwei"], "timestamp": 7},
]


class Topics:
    """Calls the command on one folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, action: str, *argv: object) -> Outcome:
        return call(self._capsys, "topics", action, *argv, "--topics-dir", self.folder / "topics")

    def write(self, topic: str, *records: object, options: tuple[str, ...] = ()) -> Outcome:
        file = self.folder / "records.jsonl"
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return self("write", topic, file, *options)


@pytest.fixture
def topics(tmp_path, capsys):
    return Topics(tmp_path, capsys)


def test_what_is_written_is_read(topics):
    assert topics("create", "t").code == 0
    written = topics.write("t", *RECORDS)
    assert (written.code, written.err) == (0, "3 records written to t\n")
    lines = topics("read", "t").lines
    for line, record in zip(lines, RECORDS, strict=True):
        assert line | record == line
    assert [(line["partition"], line["offset"]) for line in lines] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("argv", [["list"], ["read", "t"], ["create", "t"], ["write", "t", "/dev/null"]])
def test_a_place_that_is_no_folder_is_told(capsys, tmp_path, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    outcome = call(capsys, "topics", *argv, "--topics-dir", tmp_path / "file")
    assert (outcome.code, outcome.out) == (1, "")
    assert f"[CS-201] topics_dir is a file, not a folder\n  where: path {tmp_path}/file" in outcome.err
    empty = call(capsys, "topics", *argv, "--topics-dir", "")
    assert (empty.code, empty.out) == (2, "")
    assert "argument --topics-dir: the text is empty" in empty.err


def test_a_uri_is_no_folder_of_topics(capsys):
    outcome = call(capsys, "topics", "list", "--topics-dir", "s3://me:secret@bucket/topics")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "[CS-201] topics_dir cannot be 's3://bucket/topics'\n"
        "  next:  give the path of a folder: only the state may be at a URI\n"
    )


def test_a_patience_that_is_none_is_told_without_a_line_of_ours(capsys):
    outcome = call(capsys, "topics", "list", "--bootstrap-servers", "x:1", "--broker-patience", "rubbish")
    assert (outcome.code, outcome.err) == (
        1,
        "[CS-210] broker_patience is not a duration: 'rubbish'\n"
        '  next:  give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"\n',
    )


def test_what_is_read_can_be_written(topics):
    topics("create", "t", "u", "--partitions", "3")
    topics.write("t", *RECORDS)
    first = topics("read", "t")
    topics.write("u", *first.out.splitlines())
    assert topics("read", "u").out == first.out


def test_records_go_where_kafka_puts_them_unless_they_say_where(topics):
    topics("create", "t", "u", "--partitions", "4")
    keys = [f"k{n}" for n in range(20)]
    topics.write("t", *({"key": key, "value": 1} for key in keys))
    topics.write(
        "u",
        *(
            {"key": key, "value": 1, "partition": 3} if key == "k0" else {"key": key, "value": 1}
            for key in keys
        ),
    )
    default = {line["key"]: line["partition"] for line in topics("read", "t").lines}
    chosen = {line["key"]: line["partition"] for line in topics("read", "u").lines}
    assert len(set(default.values())) == 4
    assert chosen == default | {"k0": 3}


def test_a_record_without_a_timestamp_gets_the_time(topics):
    topics("create", "t")
    topics.write("t", {"key": "a", "value": 1})
    stamp = topics("read", "t").lines[0]["timestamp"]
    assert abs(stamp / 1000 - time.time()) < 60


@pytest.mark.parametrize(
    ("options", "record"),
    [
        (("--key-serde", "int64", "--value-serde", "float64"), {"key": -7, "value": 1.5}),
        (("--key-serde", "json", "--value-serde", "boolean"), {"key": {"id": 1}, "value": True}),
        (("--key-serde", "uuid"), {"key": "123e4567-e89b-12d3-a456-426614174000", "value": {}}),
        (("--key-serde", "bytes", "--value-serde", "bytes"), {"key": "text", "value": {"base64": "/w=="}}),
        (("--key-serde", "windowed[string, 1 minute]"), {"key": ["ada", 60_000, 120_000], "value": {}}),
        (("--key-serde", "windowed[int32, 10]"), {"key": [7, 60, 70], "value": {}}),
        (("--key-serde", "session_windowed[string]"), {"key": ["ada", 1, 2], "value": {}}),
    ],
)
def test_serdes_can_be_chosen(topics, options, record):
    topics("create", "t")
    assert topics.write("t", record, options=options).code == 0
    line = topics("read", "t", *options).lines[0]
    assert {"key": line["key"], "value": line["value"]} == record


@pytest.mark.parametrize(
    "name", ["windowed", "windowed[string]", "session_windowed[x]", "str", "windowed[string, ]"]
)
def test_a_serde_that_does_not_exist_is_refused_with_those_that_do(topics, name):
    outcome = topics("read", "t", "--key-serde", name)
    assert outcome.code == 2
    assert "session_windowed[SERDE]" in outcome.err


def test_a_size_that_is_not_a_duration_is_refused(topics):
    topics("create", "t")
    outcome = topics("read", "t", "--key-serde", "windowed[string, bananas]")
    assert outcome.code == 1
    assert "[CS-210] size is not a duration: 'bananas'" in outcome.err


def test_a_key_that_the_serde_does_not_take_is_refused_with_another_serde(topics):
    topics("create", "t")
    outcome = topics.write("t", {"key": {"id": 1}, "value": {}})
    assert outcome.code == 1
    assert "serde string takes str, not dict" in outcome.err
    assert "such as --key-serde json" in outcome.err


def test_headers_of_one_name_stay_apart(topics):
    topics("create", "t")
    headers = [["h", "1"], ["h", {"base64": "/w=="}], ["g", None]]
    topics.write("t", {"key": "a", "value": 1, "headers": headers})
    assert topics("read", "t").lines[0]["headers"] == headers


@pytest.mark.parametrize("part", ["key", "value"])
def test_what_is_no_text_is_no_uuid(topics, part):
    topics("create", "t")
    outcome = topics.write("t", {part: 5}, options=(f"--{part}-serde", "uuid"))
    assert outcome.code == 1
    assert "[CS-402] line 1 is not a record: write a UUID as text, not as 5" in outcome.err


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "Expecting"),
        ("[1]", "not a JSON object"),
        ("{}", "neither key nor value"),
        ('{"key": "a", "values": 1}', "no field values"),
        ('{"key": 7}', "string"),
        ('{"key": "a", "timestamp": "now"}', "timestamp is not a whole number from 0"),
        ('{"key": "a", "timestamp": -5}', "timestamp is not a whole number from 0"),
        ('{"key": "a", "timestamp": 100000000000000000000}', "timestamp has more than 64 bits"),
        ('{"key": "a", "partition": 100000000000000000000}', "partition has more than 32 bits"),
        ('{"key": "a", "partition": 2147483648}', "partition has more than 32 bits"),
        ('{"key": "a", "headers": 1}', "headers"),
        ('{"key": "a", "headers": {"h": 1}}', "base64"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_of_its_chunk_written(topics, line, what):
    topics("create", "t")
    outcome = topics.write("t", RECORDS[0], line)
    assert outcome.code == 1
    assert "[CS-402] line 2 is not a record" in outcome.err
    assert what in outcome.err
    assert topics("read", "t").out == ""


def test_a_folder_has_no_lines(topics):
    topics("create", "t")
    outcome = topics("write", "t", topics.folder)
    assert outcome.code == 1
    assert f"[CS-270] {topics.folder} cannot be read: Is a directory" in outcome.err


def test_reading_from_the_end_some_records_or_one_partition(topics):
    topics("create", "t", "--partitions", "2")
    topics.write("t", *({"key": "k", "value": n, "partition": n % 2} for n in range(10)))
    nothing = topics("read", "t", "--from", "end")
    assert (nothing.out, "add --max N" in nothing.err) == ("", True)
    assert [line["value"] for line in topics("read", "t", "--max", "3").lines] == [0, 2, 4]
    assert [line["value"] for line in topics("read", "t", "--max", "7").lines] == [0, 2, 4, 6, 8, 1, 3]
    assert [line["value"] for line in topics("read", "t", "--partition", "1").lines] == [1, 3, 5, 7, 9]
    assert "[CS-281] t has no partition 2" in topics("read", "t", "--partition", "2").err


def test_the_last_records_of_a_topic(topics):
    topics("create", "t", "--partitions", "3")
    stamps = [50, 10, 40, 20, 30, 60, 5]
    topics.write(
        "t",
        *({"key": "k", "value": n, "partition": n % 2, "timestamp": stamp} for n, stamp in enumerate(stamps)),
    )
    last = ("read", "t", "--from", "end", "--max")
    # partition 0: values 0 2 4 6; partition 1: 1 3 5, each in the order of offsets
    assert [line["value"] for line in topics(*last, "1").lines] == [5]
    assert [line["value"] for line in topics(*last, "3").lines] == [1, 3, 5]
    assert [line["value"] for line in topics(*last, "2", "--partition", "0").lines] == [4, 6]
    assert sorted(line["value"] for line in topics(*last, "9").lines) == list(range(7))
    assert topics(*last, "3", "--partition", "2").out == ""


def test_deleting(topics):
    topics("create", "t", "u", "--partitions", "2")
    topics.write("t", *RECORDS)
    missing = topics("delete", "u", "x")
    assert (missing.code, "[CS-602] there is no topic 'x'" in missing.err) == (1, True)
    assert (topics("delete", "t").code, topics("list", "--format", "json").lines) == (
        0,
        [{"topic": "u", "partitions": 2, "offsets": 0}],
    )
    assert topics("create", "t").code == 0
    assert topics("read", "t").out == ""


def test_an_undecodable_record_is_named(topics):
    topics("create", "t")
    topics.write("t", *RECORDS)
    outcome = topics("read", "t", "--value-serde", "int64")
    assert outcome.code == 1
    assert "[CS-402] the value of a record is not int64" in outcome.err
    assert "where: topic t, partition 0, offset 0" in outcome.err


def test_list(topics):
    assert topics("list").err.startswith("no topics in ")
    topics("create", "t", "u", "__internal", "--partitions", "2")
    topics.write("t", *RECORDS)
    assert topics("list").out == (
        "topic  partitions  offsets\n"
        "-----  ----------  -------\n"
        "t               2        3\n"
        "u               2        0\n"
    )
    assert topics("list", "--format", "json").lines == [
        {"topic": "t", "partitions": 2, "offsets": 3},
        {"topic": "u", "partitions": 2, "offsets": 0},
    ]


def test_topics_must_be_there_to_be_used_and_not_to_be_created(topics):
    topics("create", "t", "__internal")
    for action in ("read", "write"):
        outcome = topics(action, "tt")
        assert outcome.code == 1
        assert "[CS-602] there is no topic 'tt'" in outcome.err
        assert "next:  its topics are: t;" in outcome.err
    assert "[CS-656]" in topics("create", "t").err


def test_follow_shows_what_comes_until_it_is_interrupted(tmp_path):
    files = FileTopics(str(tmp_path / "topics"))
    write_rows(files, numbered(2))
    options = ("--topics-dir", files.topics_dir, "--value-serde", "string")
    with start("topics", "read", "t", "--follow", *options) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["value"] for _ in range(2)] == ["v0", "v1"]
        write_rows(files, numbered(1, first=2))
        assert json.loads(process.stdout.readline())["value"] == "v2"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


def test_standard_input_is_written_as_it_comes(tmp_path):
    place = tmp_path / "topics"
    FileTopics(str(place)).log().create_topic("t", 1)
    with (
        start("topics", "write", "t", "--topics-dir", place) as writer,
        start("topics", "read", "t", "--follow", "--max", "3", "--topics-dir", place) as reader,
    ):
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write('{"key": "a", "value": 1}\n{"key": "b", ')
        writer.stdin.flush()
        assert json.loads(reader.stdout.readline())["key"] == "a"
        writer.stdin.write('"value": 2}\n\n{"key": "c", "value": 3}')
        writer.stdin.flush()
        _, err = writer.communicate(timeout=30)
        out, _ = reader.communicate(timeout=30)
    assert err == "3 records written to t\n"
    assert [json.loads(line)["key"] for line in out.splitlines()] == ["b", "c"]


@pytest.mark.parametrize("option", [("--kafka", "client.id=x"), ("--kafka-config", "client.properties")])
def test_settings_of_kafka_do_not_go_with_files(topics, option):
    outcome = topics("list", *option)
    assert outcome.code == 1
    assert "[CS-203]" in outcome.err
