"""What else is done with state that a change has made another: copies, other numbers of partitions, the vacuum."""

from __future__ import annotations

from pathlib import Path

import pytest

import crossstream as cs
from crossstream.cli import main
from crossstream.errors import StateError
from crossstream.query.verification import verify_state
from crossstream.recompute.past_batch import past_batch
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import copy_state
from crossstream.storage.log_entries import SENT
from tests.evolution.test_evolve import changed, joined, loud, market, plain, rows, run
from tests.faults.one_process import process
from tests.spark.world import World

__all__ = ["market"]


def in_commits(world: World) -> list[bool]:
    """Of each kept commit, whether it has what a change would send back."""
    log = BatchLog(world.state_dir)
    return [any(store.startswith(SENT) for store in log.commit(one).versions) for one in log.commits()]


def test_it_is_inspected(market: World, capsys: object) -> None:
    changed(market, joined(loud))
    assert main(["state", "inspect", str(market.state_dir)]) == 0
    assert main(["state", "verify", str(market.state_dir)]) == 0


def test_it_is_not_run_again(market: World) -> None:
    changed(market, joined(loud))
    with pytest.raises(StateError, match="CS-715"):
        past_batch(market.state_dir, 1)
    assert past_batch(market.state_dir, 0).number == 0


def test_it_is_copied(market: World, tmp_path: Path) -> None:
    changed(market, joined(loud))
    copy_state(market.state_dir, tmp_path / "copy", links=True)
    copy_state(market.state_dir, tmp_path / "fork", links=True, owner="other")
    for folder in ("copy", "fork"):
        assert dict(cs.open_store(tmp_path / folder, "offers").all()) == rows(loud)
        assert not verify_state(tmp_path / folder).problems
        found = BatchLog(tmp_path / folder).application()
        assert found is not None
        assert found.changing < 0
    process(joined(loud), market.config(partitions=2, state_dir=tmp_path / "copy"))


def test_what_would_be_sent_back_goes_with_the_next_batch(market: World) -> None:
    changed(market, joined(loud))
    assert in_commits(market) == [False, True]
    for number in range(4):
        market.append("merchants", [("m1", f"name {number}", 9_000 + number)])
        process(joined(loud), market.config(partitions=2, retain_batches=2))
    assert not any(in_commits(market))
    process(joined(loud), market.config(partitions=2, retain_batches=2))
    assert not [
        path
        for path in (market.state_dir / "stores").iterdir()
        if path.name.startswith("sent") and any(path.rglob("*.arrow"))
    ]
    assert not verify_state(market.state_dir).problems


def test_within_one_run_its_files_go_too(market: World) -> None:
    changed(market, joined(loud))
    with cs.SparkStreams(joined(loud), market.config(engine="local", partitions=2, retain_batches=1)) as app:
        for number in range(4):
            market.append("merchants", [("m1", f"name {number}", 9_000 + number)])
            app.process_available()
        assert not list(market.state_dir.rglob("sent*/*/*.arrow"))


def test_another_number_of_partitions(market: World) -> None:
    changed(market, joined(loud))
    process(joined(loud), market.config(partitions=3))
    assert in_commits(market) == [False, True, False]
    assert dict(cs.open_store(market.state_dir, "offers").all()) == rows(loud)
    changed(market, joined(plain))
    assert dict(cs.open_store(market.state_dir, "offers").all()) == rows(plain)
    assert market.table("offers") == rows(plain)
    run(market, joined(plain))
    assert not verify_state(market.state_dir).problems


def test_a_change_that_was_interrupted_leaves_nothing(market: World) -> None:
    (market.state_dir / "evolving" / "stores").mkdir(parents=True)
    (market.state_dir / "evolving" / "stores" / "rest.arrow").write_bytes(b"")
    run(market, joined(plain))
    assert not (market.state_dir / "evolving").exists()


def test_earlier_batches_are_read_with_what_they_were(market: World) -> None:
    builder = cs.StreamsBuilder()
    text = cs.Consumed(key=cs.serdes.string(), value=cs.serdes.string())
    products = builder.table("products", text)
    by_merchant = cs.Grouped(key=cs.serdes.string(), value=cs.serdes.string())
    products.group_by(lambda key, value: (value.partition("-")[0], value), by_merchant).count(
        materialized=cs.Materialized(store="offers")
    ).to_stream().to("counts", cs.Produced(key=cs.serdes.string(), value=cs.serdes.int64()))
    changed(market, builder.build())
    assert dict(cs.open_store(market.state_dir, "offers").all()) == {f"m{n}": 20 for n in range(5)}
    assert dict(cs.open_store(market.state_dir, "offers", as_of=0).all()) == rows(plain)
    assert not verify_state(market.state_dir).problems
