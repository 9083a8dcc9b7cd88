"""Store files take another place in the state: those that a change has computed, and those of stores with a new name.

Runs never change, so a hard link is enough where both places are on one file system. A manifest names its file and its
batch, and is written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from crossstream.storage.copying import link_file
from crossstream.storage.files import file_names, in_threads, partition_folder
from crossstream.storage.manifest import LevelRef, SegmentRef, checked_run, read_manifest, write_manifest
from crossstream.storage.root import StateRoot, state_partition
from crossstream.storage.store import unique_name


@dataclass(frozen=True, slots=True)
class Adopted:
    """``versions``: manifests in their new place, by state partition. ``files``: new files, by ``store/partition``."""

    versions: Mapping[int, str]
    files: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The new files below the root of the state."""
        return list(file_names(self.files))


def adopt(
    source: StateRoot, store: str, versions: Mapping[int, str], target: StateRoot, name: str, batch: int
) -> Adopted:
    """Gives a store the name ``name`` in ``target``, as a part of ``batch``.

    Raises `StateError`: CS-701 for files that are missing or damaged, CS-706 and CS-707 where they cannot be written.
    """
    take = partial(_adopt_one, source, store, target=target, name=name, batch=batch)
    found = dict(zip(versions, in_threads(lambda one: take(*one), versions.items()), strict=True))
    files = {f"{name}/{partition}": [*runs, manifest] for partition, (manifest, runs) in found.items()}
    return Adopted({partition: manifest for partition, (manifest, _) in found.items()}, files)


def _adopt_one(
    source: StateRoot, store: str, partition: int, manifest: str, target: StateRoot, name: str, batch: int
) -> tuple[str, list[str]]:
    """A state partition: the name of its new manifest, and of its runs."""
    prefix = unique_name(batch)
    with state_partition(source, store, partition) as storage:
        found = read_manifest(storage, manifest)
        runs = {ref.file: ref for ref in found.segments()}
        names = {old: f"{prefix}-{number}.arrow" for number, old in enumerate(runs)}
        old_folder, new_folder = partition_folder(store, partition), partition_folder(name, partition)
        there = target.storage(new_folder)
        for old, new in names.items():
            if not link_file(source, f"{old_folder}/{old}", target, f"{new_folder}/{new}"):
                there.write(new, checked_run(storage, runs[old]))
    levels = tuple(_renamed(level, names) for level in found.levels)
    written = structs.replace(found, name=f"{prefix}.manifest", batch=batch, levels=levels)
    write_manifest(there, written)
    return written.name, list(names.values())


def _renamed(level: LevelRef, names: Mapping[str, str]) -> LevelRef:
    segments: tuple[SegmentRef, ...] = tuple(
        structs.replace(ref, file=names[ref.file]) for ref in level.segments
    )
    return structs.replace(level, segments=segments)
