"""The folder in which stores are rebuilt: a state of its own, below the one that it is made for."""

from __future__ import annotations

import shutil
from urllib.parse import urlsplit, urlunsplit

from crossstream.error_codes import refuse
from crossstream.filetopics import FileTopics
from crossstream.storage.files import EVOLVING
from crossstream.storage.remote import RemoteRoot
from crossstream.storage.root import LocalRoot, StateRoot


def temporary_root(root: StateRoot) -> StateRoot:
    """The folder below the state in ``root``, whether it is there or not.

    >>> from crossstream.storage.root import root_of
    >>> str(temporary_root(root_of("state")))
    'state/evolving'
    """
    if not isinstance(root, RemoteRoot):
        return LocalRoot(root.here / EVOLVING)
    parts = urlsplit(root.address)
    return RemoteRoot(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{EVOLVING}")))


def event_topics(there: StateRoot) -> FileTopics:
    """Where events wait that are sent again: topics in a temporary folder, which all workers see.

    Raises `StateError` CS-756 for one on an object store.
    """
    if there.is_remote:
        what = "results of streams are sent again out of a folder, and the state is on an object store"
        raise refuse("CS-756", what, "leave replay_from out", folder=str(there))
    return FileTopics(str(there.here / "topics"), durable=False)


def empty(root: StateRoot) -> None:
    """Removes everything in a temporary folder, and the folder; what it is made for must be locked."""
    if root.is_remote:
        root.settled()
        root.delete(
            *[
                f"{folder}/{name}" if folder else name
                for folder, names in root.tree("").items()
                for name in names
            ]
        )
    here = root.here
    if here.is_symlink():
        here.unlink()
    elif here.exists():
        shutil.rmtree(here)
