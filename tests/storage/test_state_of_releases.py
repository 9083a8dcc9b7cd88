"""State that each release has written is opened, queried and continued by this version, or refused with what to do.

`tests/data/state/make.py` writes it, once for each release. The file ``refused`` beside it has the code with which this
version refuses it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import crossstream as cs
from crossstream.query.verification import verify_state
from tests.data.state import make
from tests.data.state.make import BATCHES, JSON, SINKS, TEXT, answers, batches, create, run, topology
from tests.faults.one_process import process
from tests.spark.world import World

RELEASES = sorted(path for path in make.HERE.iterdir() if (path / "state").is_dir())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "release"))


def test_this_release_is_among_them() -> None:
    assert cs.__version__ in [path.name for path in RELEASES], "run python -m tests.data.state.make"


@pytest.mark.slow
def test_it_is_opened_and_continued_or_refused(release: Path, tmp_path: Path) -> None:
    world, fresh = World(release), World(tmp_path / "fresh")
    if (release / "refused").exists():
        with pytest.raises(cs.StateError, match=(release / "refused").read_text().strip()) as error:
            process(topology(), world.config())
        assert error.value.next
        return
    assert answers(world.state_dir) == json.loads((release / "answers.json").read_text())
    assert verify_state(world.state_dir).problems == []
    run(world, batches(2, BATCHES, 3))
    create(fresh)
    run(fresh, batches(1, 0, BATCHES))
    assert answers(fresh.state_dir) == json.loads((release / "answers.json").read_text())
    run(fresh, batches(2, BATCHES, 3))
    assert answers(world.state_dir) == answers(fresh.state_dir)
    for topic in SINKS:
        value = cs.serdes.int64() if topic == "closed" else JSON
        found, wanted = (sorted(one.read(topic, TEXT, value), key=repr) for one in (world, fresh))
        assert found == wanted, topic
        assert fresh.read(topic, TEXT, value), "the topology gives results"


def test_other_formats_are_refused_with_what_to_do(release: Path) -> None:
    """What a version before or after this one writes may have another format."""
    from crossstream.storage import commit_log, log_entries

    world = World(release)
    log = commit_log.BatchLog(world.state_dir)
    found = log.application()
    assert found is not None
    for number in (log_entries.FORMAT - 1, log_entries.FORMAT + 1):
        log.write_application(commit_log.msgspec.structs.replace(found, format=number))
        with pytest.raises(cs.StateError, match="CS-704") as error:
            process(topology(), world.config())
        assert "run the version of crossstream that wrote it" in str(error.value.next)
