"""URIs of state: what is one, what of it is shown, and what is told where there is no file system for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossstream.errors import StateError
from crossstream.storage.bucket import Bucket, Uri
from crossstream.storage.root import root_of


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


class TestCredentials:
    """They come from the URI, then the environment, then the keys of a profile."""

    @pytest.fixture(autouse=True)
    def _profiles(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE", "AWS_REGION"):
            monkeypatch.delenv(name, raising=False)
        (tmp_path / "config").write_text(
            "[default]\nregion = eu-west-1\n[profile other]\nregion = us-west-2\n"
        )
        (tmp_path / "credentials").write_text(
            "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
            "[other]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def test_of_a_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Bucket(Uri("s3://bucket/state")).connected().config
        assert (found["access_key_id"], found["secret_access_key"], found["region"]) == (
            "a",
            "b",
            "eu-west-1",
        )
        monkeypatch.setenv("AWS_PROFILE", "other")
        found = Bucket(Uri("s3://bucket/state")).connected().config
        assert (found["access_key_id"], found["region"], found["session_token"]) == ("c", "us-west-2", "e")

    def test_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
        found = Bucket(Uri("s3://bucket/state?region=eu-central-1")).connected().config
        assert found["region"] == "eu-central-1"
        assert found.get("access_key_id") in (None, "x")

    def test_of_the_uri(self) -> None:
        found = Bucket(Uri("s3://k:s%2Ft@bucket/state?region=x&scheme=http&endpoint_override=minio:9000"))
        config = found.connected().config
        assert (config["access_key_id"], config["secret_access_key"]) == ("k", "s/t")
        assert (config["region"], config["endpoint"]) == ("x", "http://minio:9000")
        assert "session_token" not in config
