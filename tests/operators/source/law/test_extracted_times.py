"""A backlog that is cut is read in the order of the times that extractors give, in full: no cut changes a result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import application
from tests.laws.effort import cases
from tests.spark.world import World

TEXT, JSON = serdes.string(), serdes.json()
Rows = Sequence[tuple[str, bytes, int]]
"""Key, value, and the timestamp that the topic has."""


def at(key: str, value: Any, timestamp: int) -> int:
    return int(value["at"])


EXTRACTORS: dict[str, Any] = {"callable": at, "expression": pl.col("at"), "none": None}
DECLARED = serdes.json(pl.Struct({"at": pl.Int64}))


def consumed(extractor: str) -> cs.Consumed:
    return cs.Consumed(key=TEXT, value=DECLARED, timestamp_extractor=EXTRACTORS[extractor])


def paired(left: Any, right: Any) -> list[Any]:
    return [left and left["at"], right and right["at"]]


def looked_up(visits: str, users: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("visits", consumed(visits)), builder.table("users", consumed(users))
    stream.left_join(table, paired).to("out", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def in_windows(visits: str, users: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left, right = builder.stream("visits", consumed(visits)), builder.stream("users", consumed(users))
    windows = cs.JoinWindows.of(3, grace=0)
    joined = cs.StreamJoined(key=TEXT, value=DECLARED, other_value=DECLARED)
    left.outer_join(right, paired, windows, joined).to("out", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def with_versions(visits: str, users: str) -> cs.Topology:
    """A record that is too old for the versions is refused."""
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(history_retention=3)
    stream, table = builder.stream("visits", consumed(visits)), builder.table("users", consumed(users), kept)
    stream.left_join(table, paired).to("out", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def results(root: Path, topology: cs.Topology, given_: dict[str, Rows], limit: int | None) -> list[Any]:
    """What comes out of everything that is in the topics, in order."""
    world = World(root)
    world.create(visits=2, users=3, out=1)
    for topic, rows in given_.items():
        world.append_wire(topic, [(key.encode(), value, ts) for key, value, ts in rows])
    config = world.config(
        partitions=1, max_records_per_batch=limit, deserialization_errors="skip", processing_errors="skip"
    )
    with application(topology, config) as engine:
        engine.run_until(engine.inputs.end_offsets())
    return [(one.key, one.value, one.ts) for one in world.read("out", TEXT, JSON)]


def happened(*times: tuple[str, int, int]) -> Rows:
    return [(key, b'{"at": %d}' % at, written) for key, at, written in times]


VISITS = happened(("u1", 5000, 100_000), ("u2", 500, 100_001))
USERS = happened(("u1", 1000, 200_000), ("u2", 1000, 200_001))


@pytest.mark.parametrize("limit", [None, 1, 2, 3])
@pytest.mark.parametrize("extractor", ["callable", "expression"])
def test_a_visit_finds_the_user_of_an_earlier_time_who_was_written_later(
    tmp_path: Path, extractor: str, limit: int | None
) -> None:
    made = looked_up(extractor, extractor)
    found = results(tmp_path, made, {"visits": VISITS, "users": USERS}, limit)
    assert ("u1", [5000, 1000], 5000) in found


def test_what_was_looked_at_is_read_once(tmp_path: Path) -> None:
    """In the driver: a record is looked at once there, and once by the batch that takes it."""
    called: list[int] = []

    def noting(key: str, value: Any, timestamp: int) -> int:
        called.append(value["at"])
        return int(value["at"])

    builder = cs.StreamsBuilder()
    for topic in ("visits", "users"):
        builder.stream(topic, cs.Consumed(key=TEXT, value=JSON, timestamp_extractor=noting)).to("out")
    rows = happened(*((f"k{n}", n, 1000 - n) for n in range(300)))
    results(tmp_path, builder.build(), {"visits": rows, "users": rows}, 50)
    assert max(called.count(n) for n in range(300)) <= 4  # in each of two topics


one_value = st.one_of(st.integers(-1, 30).map(lambda at: b'{"at": %d}' % at), st.sampled_from([b"{", b"{}"]))
rows = st.lists(st.tuples(st.sampled_from("abc"), one_value, st.integers(0, 30)), max_size=20)
kinds = st.tuples(*[st.sampled_from(sorted(EXTRACTORS))] * 2)


@cases(0.5)
@given(st.sampled_from([looked_up, in_windows, with_versions]), kinds, rows, rows, st.integers(1, 12))
@example(looked_up, ("callable", "callable"), VISITS, USERS, 2)
def test_no_cut_changes_a_result(
    topology: Callable[..., cs.Topology], of: tuple[str, str], visits: Rows, users: Rows, limit: int
) -> None:
    """Records that cannot be decoded, or have no time, among them."""
    given_ = {"visits": visits, "users": users}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = results(Path(one), topology(*of), given_, None)
        cut = results(Path(other), topology(*of), given_, limit)
    assert sorted(map(repr, cut)) == sorted(map(repr, whole))
