"""State on an object store: URIs, and the objects below one: read, put whole, put on a condition, list, delete.

The conditions (``If-None-Match``, ``If-Match``) are what lets one application at a time write (`lease.py`). A URI may
hold secrets: user and password before the ``@``, and options. They reach the object store and nothing else: errors,
logs and owners of a lease have the URI without them.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
import xxhash

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, StateError
from crossstream.storage.door import MOST_JSON, MOST_RUN

AWAY = "CS-707"
"""The code of the error for a store that does not answer, or refuses."""

REMOTE = "s3"
"""The scheme of an object store."""

LOCAL = "file"
"""The scheme of a local folder, which is not a remote place."""

OPTIONS = ("region", "scheme", "endpoint_override")
"""What a URI may say about a store that speaks S3. None of it is secret."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def is_uri(place: object) -> bool:
    """Whether a place is given as a URI, and not as a path.

    >>> is_uri("s3://bucket/state"), is_uri("state"), is_uri("/a/b://c")
    (True, False, False)
    """
    found = _SCHEME.match(place) if isinstance(place, str) else None
    return found is not None and str(place).startswith("//", found.end() - 1)


def scheme_of(place: object) -> str | None:
    """The scheme of a URI, also of one that `Path` took for a path (``s3:/bucket``); None for a path.

    >>> from pathlib import Path
    >>> scheme_of("s3://bucket/state"), scheme_of(Path("s3://bucket/state")), scheme_of("state")
    ('s3', 's3', None)
    """
    found = _SCHEME.match(str(place))
    scheme = None if found is None else found[1].lower()
    return scheme if is_uri(place) or scheme in (REMOTE, LOCAL) else None


def local_path(uri: str) -> str:
    """The folder that a ``file`` URI names. Raises `StateError` CS-723 if it is on another machine.

    >>> local_path("file:///srv/my%20state")
    '/srv/my state'
    """
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise unknown(str(Uri(uri)), "a file URI names a folder of this machine by its whole path: file:///…")
    return unquote(parts.path)


@dataclass(frozen=True, slots=True, repr=False)
class Uri:
    """``s3://[key:secret@]bucket/folder?option=…``. As text it has no secrets."""

    whole: str

    def __str__(self) -> str:
        parts = self.parts
        host = parts.netloc.rpartition("@")[2]
        if ":" in host and ("@" in parts.path or not host.rpartition(":")[2].isdigit()):
            return f"{parts.scheme}://…"  # a password with a slash, which would have to be %2F
        return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"

    def __repr__(self) -> str:
        return f"Uri({str(self)!r})"

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.whole)

    @property
    def bucket(self) -> str:
        return self.parts.netloc.rpartition("@")[2]

    @property
    def credentials(self) -> tuple[str, str]:
        """User and password, or two empty texts."""
        user, _, password = self.parts.netloc.rpartition("@")[0].partition(":")
        return unquote(user), unquote(password)

    @property
    def options(self) -> dict[str, str]:
        return dict(parse_qsl(self.parts.query, keep_blank_values=True))

    @property
    def key(self) -> str:
        """A short name for the place, the same for all credentials."""
        options = sorted((name, value) for name, value in self.options.items() if name in OPTIONS)
        place = f"{self}?{urlencode(options)}" if options else str(self)
        tail = re.sub(r"[^A-Za-z0-9._-]+", "-", str(self).partition("://")[2])[-60:]
        return f"{tail}-{xxhash.xxh3_64_hexdigest(place.encode())}"

    def hidden(self, text: object) -> str:
        """What a store said, without secrets of the URI and in one line."""
        said = " ".join(str(text).split())
        options = (value for name, value in self.options.items() if name not in OPTIONS)
        found = {self.whole, *self.credentials, *options}
        spelled = {form for one in found for form in (one, unquote(one), quote(one, safe=""))}
        for secret in sorted((one for one in spelled if len(one) > 2), key=len, reverse=True):
            said = said.replace(secret, "…")
        return said


def unopened(place: str, reason: str | None, step: str) -> CrossStreamError:
    """The error for a place of state that cannot be opened; ``place`` and ``reason`` may be shown."""
    what = f"the place of the state cannot be opened: {reason}"
    return refuse("CS-723", what, step, folder=place)


def refused(uri: Uri, error: object) -> CrossStreamError:
    step = "check that the bucket exists, the credentials and their rights, region and endpoint"
    return unopened(str(uri), uri.hidden(error), step)


def shown(place: str | os.PathLike[str]) -> str:
    """A folder or a URI as it may be shown."""
    return str(Uri(place)) if isinstance(place, str) and is_uri(place) else str(place)


def unknown(place: str, why: str) -> CrossStreamError:
    """The error for a URI that names no place for state; ``place`` and ``why`` may be shown."""
    step = f"give a path, or a URI with the scheme {REMOTE}:// or {LOCAL}://"
    return refuse("CS-723", f"state cannot be kept at this URI: {why}", step, folder=place)


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

    def get(self, name: str, most: int = MOST_RUN) -> pa.Buffer:
        """The bytes of an object; `FileNotFoundError` if it does not exist, or is empty.

        Raises `StateError` CS-701 for one of more than ``most`` bytes.
        """
        data, _ = self.tagged(name, most)
        if not data.size:
            raise FileNotFoundError(name)
        return data

    def tagged(self, name: str, most: int = MOST_JSON) -> tuple[pa.Buffer, str]:
        """The bytes of an object, and the tag of this version of it. Raises as `get`."""
        with self._errors(f"{name} cannot be read"):
            found = self.connected().get(name)
            if (size := int(found.meta["size"])) > most:
                what = f"{name} has {size:,} bytes, more than such a file has"
                raise refuse("CS-701", what, folder=str(self.uri))
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
            what = f"the store of the state does not answer, or refuses: {what}: {self.uri.hidden(said)}"
            raise refuse(AWAY, what, folder=str(self.uri)) from None


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
    if region := options.get("region"):
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
