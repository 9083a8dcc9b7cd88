"""URIs of state: what is one, what of it is shown, and what is told where there is no file system for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossstream.errors import StateError
from crossstream.storage.root import root_of
from crossstream.storage.uris import Uri


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/some/state/", "s3://bucket/some/state"),
        ("s3://key:secret@bucket/state?region=eu&secret=secret", "s3://bucket/state"),
        ("s3://key:sec/ret@bucket/state", "s3://…"),
        ("s3://1:2/secret@bucket/state", "s3://…"),
    ],
)
def test_secrets_are_not_shown(uri: str, shown: str) -> None:
    made = Uri(uri)
    assert str(made) == shown
    assert repr(made) == f"Uri({shown!r})"
    assert "secret" not in made.key


def test_copies_are_found_again_with_other_credentials() -> None:
    keys = [
        Uri(f"s3://{who}bucket/state?region=eu&endpoint_override={where}").key
        for who, where in (("", "a:1"), ("key:secret@", "a:1"), ("", "b:1"))
    ]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2], "another store"


def test_what_a_file_system_says_is_shown_without_secrets() -> None:
    uri = Uri("s3://key:sec%2Fret@bucket/state?region=eu&option=hidden")
    said = "Cannot open s3://key:sec%2Fret@bucket/state?region=eu&option=hidden:\n sec/ret of key, hidden, eu"
    assert uri.hidden(said) == "Cannot open …: … of …, …, eu"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("s4://bucket/state", "the scheme s4 is not supported"),
        ("gs://bucket/state", "the scheme gs is not supported"),
        ("hdfs://name:8020/state", "the scheme hdfs is not supported"),
        ("s3://bucket/state?no_such_option=1", "no_such_option"),
        ("s3://", "names no bucket"),
        ("s3://key:sec/ret@bucket/state", "names no bucket"),
        ("file://other/state", "this machine"),
        (Path("s3://bucket/state"), "as text"),
    ],
)
def test_without_a_file_system_it_is_told(uri: str | Path, why: str) -> None:
    with pytest.raises(StateError, match=why) as caught:
        root_of(uri).read("application.json")
    assert caught.value.code == "CS-723"
    assert "s3://" in str(caught.value.next)
