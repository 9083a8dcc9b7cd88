"""URIs of the file systems that pyarrow knows: which there are, how one is opened, and what of a URI may be shown.

A URI may hold secrets: user and password before the ``@``, and options such as the key of an account. They reach
the file system and nothing else; errors, logs and owners of a lease have the URI without them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
import xxhash

from crossstream.errors import StateError

REMOTE = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes of remote file systems."""

LOCAL = "file"
"""The scheme of a local folder: it is one, and not a remote place."""

_ACCOUNTS = ("abfs", "abfss")
"""Where the name before the ``@`` is no secret: a container or an account."""

_OPEN = ("region", "scheme", "endpoint_override", "blob_storage_authority", "dfs_storage_authority")
"""Options that tell where a store is. All others may be secret."""

_DELAYED = "allow_delayed_open"
"""S3: a small object is one request instead of three. Older versions of pyarrow do not know it."""


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
    return scheme if is_uri(place) or scheme in (*REMOTE, LOCAL) else None


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
    """The URI of a folder on a remote file system. As text it has no secrets."""

    whole: str

    def __str__(self) -> str:
        parts = urlsplit(self.whole)
        user, at, host = parts.netloc.rpartition("@")
        if ":" in host and ("@" in parts.path or not host.rpartition(":")[2].isdigit()):
            return f"{parts.scheme}://…"  # a password with a slash, which would have to be %2F
        account = user.partition(":")[0] if parts.scheme.lower() in _ACCOUNTS else ""
        return f"{parts.scheme}://{account}{at if account else ''}{host}{parts.path.rstrip('/')}"

    def __repr__(self) -> str:
        return f"Uri({str(self)!r})"

    @property
    def key(self) -> str:
        """A short name for the place, the same whatever credentials are used."""
        options = sorted((name, value) for name, value in self._options() if name in _OPEN)
        place = f"{self}?{urlencode(options)}" if options else str(self)
        tail = re.sub(r"[^A-Za-z0-9._-]+", "-", str(self).partition("://")[2])[-60:]
        return f"{tail}-{xxhash.xxh3_64_hexdigest(place.encode())}"

    def hidden(self, text: object) -> str:
        """What a file system said, without secrets of the URI and in one line."""
        said = " ".join(str(text).split())
        for secret in sorted(self._secrets(), key=len, reverse=True):
            said = said.replace(secret, "…")
        return said

    def connect(self) -> tuple[Any, str]:
        """The file system of pyarrow, and the path of the folder in it.

        Raises `StateError`: CS-723 if pyarrow has none for the URI or it names no bucket, CS-723 if it is not reached.
        """
        from pyarrow import fs  # loads the SDKs of the stores; not needed for local folders

        try:
            try:
                system, path = fs.FileSystem.from_uri(self._with_delayed_open())
            except pa.ArrowInvalid as error:
                if _DELAYED not in str(error):
                    raise
                system, path = fs.FileSystem.from_uri(self.whole)
        except (ValueError, NotImplementedError, ImportError) as error:
            raise unknown(str(self), self.hidden(error)) from None
        except OSError as error:
            raise refused(self, error) from None
        path = path.rstrip("/")
        if not path and system.type_name != "hdfs":  # only there the root is a folder like others
            raise unknown(str(self), "it names no bucket or container")
        return system, path

    def _with_delayed_open(self) -> str:
        parts = urlsplit(self.whole)
        if parts.scheme.lower() != "s3" or _DELAYED in parts.query:
            return self.whole
        return parts._replace(query="&".join(filter(None, (parts.query, f"{_DELAYED}=true")))).geturl()

    def _options(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.whole).query, keep_blank_values=True)

    def _secrets(self) -> set[str]:
        parts = urlsplit(self.whole)
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        found = {self.whole, self._with_delayed_open(), password}
        if parts.scheme.lower() not in _ACCOUNTS:
            found.add(user)
        found |= {value for name, value in self._options() if name not in _OPEN}
        spelled = {form for one in found for form in (one, unquote(one), quote(one, safe=""))}
        return {one for one in spelled if len(one) > 2}


def refused(uri: Uri, error: object) -> StateError:
    """The place of the state cannot be opened."""
    return StateError(
        f"the place of the state cannot be opened: {uri.hidden(error)}",
        code="CS-723",
        where={"folder": str(uri)},
        next="check that the bucket or container is there, the credentials and their rights, region and endpoint",
    )


def shown(place: str | os.PathLike[str]) -> str:
    """A folder or a URI as it may be shown."""
    return str(Uri(place)) if isinstance(place, str) and is_uri(place) else str(place)


def unknown(place: str, why: str) -> StateError:
    """There is no file system for a URI, of which ``place`` and ``why`` may be shown."""
    return StateError(
        f"there is no file system for this URI: {why}",
        code="CS-723",
        where={"folder": place},
        next=f"give a path, or a URI that pyarrow.fs takes: {'://, '.join(REMOTE)}://, {LOCAL}://",
    )
