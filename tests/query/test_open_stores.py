"""A reader beside an application: whatever becomes of the state, it answers from what is there, or says why not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.sorted_run import Run
from crossstream.task.stores import FolderStores
from tests.docs.state_folder import Writer

TEXT = serdes.string()
RETAIN = 2


def application(root: Path, value: serdes.Serde = TEXT, partitions: int = 1, store: str = "rows") -> Writer:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=value), cs.Materialized(store=store))
    return Writer(root, builder.build(), partitions=partitions, retain=RETAIN)


def filled(root: Path, batches: int, tag: str = "v", **settings: Any) -> Writer:
    writer = application(root, **settings)
    for batch in range(batches):
        writer.run({"rows": [(b"k", f"{tag}{batch}".encode(), batch)]})
    return writer


def anew(root: Path, batches: int, tag: str, **settings: Any) -> None:
    """The state is removed, and the application begins at the beginning."""
    shutil.rmtree(root)
    filled(root, batches, tag, **settings).close()


class LetGo(dict[str, Run]):
    """Open files, which another thread lets go of as soon as this one has looked for them."""

    def __contains__(self, name: object) -> bool:
        return self.pop(name, None) is not None

    def keys(self) -> Any:
        names = set(super().keys())
        self.clear()
        return names


def test_threads_share_a_reader(tmp_path: Path) -> None:
    """One that opens a version lets files go that another one is about to take, or to let go."""
    stores = FolderStores(tmp_path)
    with closing(filled(tmp_path, 12)) as writer:
        definition = writer.plan.stores["rows"]
        newest = writer.versions["rows"][0]
        whole = stores.open(definition, 0, newest)
        stores.held.clear()
        stores.files["rows", 0] = LetGo(
            {**stores.files["rows", 0], "another": whole.parts[0].segments[0].run}
        )
        again = stores.open(definition, 0, newest)
    assert again.snapshot().live()["value"].to_pylist() == [b"v11"]


class TestStateThatBeginsAnew:
    @pytest.mark.parametrize("batches", [1, 3, 5])
    @pytest.mark.parametrize("partitions", [1, 3])
    def test_is_what_an_open_reader_sees(self, tmp_path: Path, batches: int, partitions: int) -> None:
        filled(tmp_path, 3).close()
        live, stays = cs.open_store(tmp_path, "rows"), cs.open_store(tmp_path, "rows", as_of=2)
        assert (live.get("k"), stays.get("k")) == ("v2", "v2")
        anew(tmp_path, batches, "new", partitions=partitions)
        assert live.get("k") == f"new{batches - 1}"
        if batches > 2:
            assert stays.get("k") == "new2"

    def test_has_no_rows_before_its_first_batch(self, tmp_path: Path) -> None:
        filled(tmp_path, 3).close()
        live = cs.open_store(tmp_path, "rows")
        anew(tmp_path, 0, "new", partitions=3)
        assert live.get("k") is None

    def test_is_read_with_its_own_serdes_or_not_at_all(self, tmp_path: Path) -> None:
        filled(tmp_path, 3).close()
        live = cs.open_store(tmp_path, "rows")
        anew(tmp_path, 3, "", value=serdes.json())
        with pytest.raises(cs.StateError, match="is not what it was when it was opened") as caught:
            live.get("k")
        assert caught.value.code == "CS-710"
        assert cs.open_store(tmp_path, "rows").get("k") == 2

    def test_may_lack_the_store(self, tmp_path: Path) -> None:
        filled(tmp_path, 3).close()
        live = cs.open_store(tmp_path, "rows")
        anew(tmp_path, 3, "", store="others")
        with pytest.raises(cs.StateError) as caught:
            live.get("k")
        assert caught.value.code == "CS-710"

    def test_may_be_gone_for_good(self, tmp_path: Path) -> None:
        filled(tmp_path, 3).close()
        live = cs.open_store(tmp_path, "rows")
        shutil.rmtree(tmp_path)
        with pytest.raises(cs.StateError) as caught:
            live.get("k")
        assert caught.value.code == "CS-713"


class TestABatchThatIsRetiredWhileItIsRead:
    @pytest.fixture
    def writer(self, tmp_path: Path) -> Iterator[Writer]:
        made = filled(tmp_path, 3)
        yield made
        made.close()

    @pytest.mark.parametrize("place", [(BatchLog, "commit"), (FolderStores, "open")])
    def test_is_not_kept(
        self, tmp_path: Path, writer: Writer, place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kind, name = place
        monkeypatch.setattr(kind, name, after(lambda: go_on(writer), getattr(kind, name)))
        with pytest.raises(cs.StateError, match="batch 1 is not kept") as caught:
            cs.open_store(tmp_path, "rows", as_of=1)
        assert caught.value.code == "CS-713"

    @pytest.mark.parametrize("as_of", ["0", True, 0.5])
    def test_what_is_no_batch_is_not_kept(self, tmp_path: Path, writer: Writer, as_of: Any) -> None:
        with pytest.raises(cs.StateError, match=f"batch {as_of!r} is not kept") as caught:
            cs.open_store(tmp_path, "rows", as_of=as_of)
        assert caught.value.code == "CS-713"

    def test_damage_is_told_as_damage(self, tmp_path: Path, writer: Writer) -> None:
        for run in (tmp_path / "stores/rows/0").glob("*.arrow"):
            run.unlink()
        with pytest.raises(cs.StateError) as caught:
            cs.open_store(tmp_path, "rows", as_of=1)
        assert caught.value.code == "CS-701"


def after(act: Callable[[], None], work: Callable[..., Any]) -> Callable[..., Any]:
    """``work``, with something that happens right before its first call."""
    acts = iter([act])

    def done(*given: Any) -> Any:
        next(acts, lambda: None)()
        return work(*given)

    return done


def go_on(writer: Writer) -> None:
    for batch in range(3, 20):
        writer.run({"rows": [(b"k", b"later", batch)]})
