"""Objects below an S3 URI: read, put whole, put on a condition, list, delete.

The conditions (``If-None-Match``, ``If-Match``) are what lets one application at a time write (`lease.py`).
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import Request, urlopen

import pyarrow as pa

from crossstream.errors import StateError
from crossstream.storage.uris import OPTIONS, REMOTE, Uri, refused, unknown

AWAY = "CS-707"
"""The code of the error for a store that does not answer, or refuses."""

_ANSWER = re.compile(r"<\?xml.*<Code>(.*?)</Code>.*<Message>(.*?)</Message>.*", re.DOTALL)
"""What S3 answers to a request that it refuses."""
_NO_BUCKET = "NoSuchBucket"


class Bucket:
    """The objects below a URI. Connects at the first use; several threads may use it."""

    def __init__(self, uri: Uri) -> None:
        self.uri = uri
        self._store: Any = None

    def __str__(self) -> str:
        return str(self.uri)

    def get(self, name: str) -> pa.Buffer:
        """The bytes of an object; `FileNotFoundError` if it does not exist, or is empty."""
        data, _ = self.tagged(name)
        if not data.size:
            raise FileNotFoundError(name)
        return data

    def tagged(self, name: str) -> tuple[pa.Buffer, str]:
        """The bytes of an object, and the tag of this version of it."""
        with self._errors(f"{name} cannot be read"):
            found = self.connected().get(name)
            return pa.py_buffer(found.bytes()), str(found.meta["e_tag"])

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Puts an object. When this returns, the object is durable."""
        self._put(name, data, "overwrite")

    def create(self, name: str, data: bytes) -> str:
        """Puts an object that must not exist yet, else `FileExistsError`; returns its tag."""
        return self._put(name, data, "create")

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """Puts an object in the place of the version with this tag, else `FileExistsError`; returns the new tag."""
        return self._put(name, data, {"e_tag": tag})

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects, of which some may not exist."""
        if wanted := list(names):
            with self._errors(f"{wanted[0]} cannot be deleted"), suppress(FileNotFoundError):
                self.connected().delete(wanted)

    def below(self, folder: str) -> list[str]:
        """The names of the objects below a folder that are not empty; relative to the URI."""
        with self._errors(f"{folder or 'the folder'} cannot be listed"):
            chunks = list(self.connected().list(folder or None))
        return [found["path"] for chunk in chunks for found in chunk if found["size"]]

    def names(self, folder: str) -> list[str]:
        """The names in one folder, sorted, without those in folders below it."""
        with self._errors(f"{folder or 'the folder'} cannot be listed"):
            found = self.connected().list_with_delimiter(folder or None)["objects"]
        return sorted(one["path"].rpartition("/")[2] for one in found if one["size"])

    def check(self) -> None:
        """Raises `StateError` CS-723 if there is no such bucket."""
        try:
            self.names("commits")
        except StateError as error:
            if _NO_BUCKET in error.what:
                raise refused(self.uri, f"there is no bucket {self.uri.bucket}") from None
            raise

    def connected(self) -> Any:
        if self._store is None:
            self._store = _connect(self.uri)
        return self._store

    def _put(self, name: str, data: bytes | memoryview | pa.Buffer, mode: Any) -> str:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._errors(f"{name} cannot be written"):
            try:
                return str(self.connected().put(name, memoryview(data).cast("B"), mode=mode)["e_tag"])
            except (AlreadyExistsError, PreconditionError):
                raise FileExistsError(name) from None

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Makes one error of all that the client may raise; of a missing object `FileNotFoundError`."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            if isinstance(error, FileExistsError):
                raise
            if isinstance(error, FileNotFoundError) and _NO_BUCKET not in str(error):
                raise FileNotFoundError(what) from None
            said = _ANSWER.sub(r"\1: \2", str(error).partition("\n\nDebug source")[0])
            raise StateError(
                f"the store of the state does not answer, or refuses: {what}: {self.uri.hidden(said)}",
                code=AWAY,
                where={"folder": str(self.uri)},
                next="check the store and the rights on it, then start the application again: it repeats the batch",
            ) from None


def _connect(uri: Uri) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    parts, options = uri.parts, uri.options
    if parts.scheme.lower() != REMOTE:
        raise unknown(str(uri), f"the scheme {parts.scheme} is not supported")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", uri.bucket):
        raise unknown(str(uri), "it names no bucket")
    if others := sorted(options.keys() - set(OPTIONS)):
        raise unknown(str(uri), f"the option {others[0]} is not one of {', '.join(OPTIONS)}")
    scheme, endpoint = options.get("scheme", "https"), options.get("endpoint_override")
    config: Any = _profile() if not any(uri.credentials) else {}
    if any(uri.credentials):
        config["access_key_id"], config["secret_access_key"] = uri.credentials
    if endpoint is not None:
        config["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    region = options.get("region") or config.get("region")
    if region is None and endpoint is None and not _environment("AWS_REGION", "AWS_DEFAULT_REGION"):
        region = _region_of(uri.bucket)
    if region is not None:
        config["region"] = region
    client: Any = {"allow_http": scheme == "http", "connect_timeout": "5s", "timeout": "300s"}
    try:
        return S3Store(
            uri.bucket,
            prefix=unquote(parts.path).strip("/") or None,
            config=config,
            client_options=client,
            retry_config={"max_retries": 5},
        )
    except (BaseError, ValueError) as error:
        raise refused(uri, error) from None


def _environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _profile() -> dict[str, str]:
    """Keys and region of an AWS profile, where the environment has none. Roles of machines come after it."""
    if _environment("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        return {}
    name = _environment("AWS_PROFILE") or "default"
    files = configparser.RawConfigParser()
    with suppress(configparser.Error, OSError, RuntimeError):
        folder = Path.home() / ".aws"
        files.read(
            [
                _environment("AWS_CONFIG_FILE") or folder / "config",
                _environment("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials",
            ]
        )
    found: dict[str, str] = {}
    for section in (f"profile {name}", name):
        found |= dict(files[section]) if files.has_section(section) else {}
    wanted = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region"}
    return {key.removeprefix("aws_"): found[key] for key in wanted & found.keys()}


def _region_of(bucket: str) -> str | None:
    """The region of a bucket on AWS, which it says to everybody; None if it is not to be found out."""
    request = Request(f"https://{bucket}.s3.amazonaws.com", method="HEAD")
    try:
        with urlopen(request, timeout=5) as answer:
            return answer.headers.get("x-amz-bucket-region")  # type: ignore[no-any-return]
    except HTTPError as error:
        return error.headers.get("x-amz-bucket-region")
    except OSError:
        return None
