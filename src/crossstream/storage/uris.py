"""Places of state given as URIs: which there are, and what of a URI may be shown.

A URI may hold secrets: user and password before the ``@``, and options. They reach the object store and nothing
else: errors, logs and owners of a lease have the URI without them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import xxhash

from crossstream.errors import StateError

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


def refused(uri: Uri, error: object) -> StateError:
    """The error for a place of state that cannot be opened."""
    return StateError(
        f"the place of the state cannot be opened: {uri.hidden(error)}",
        code="CS-723",
        where={"folder": str(uri)},
        next="check that the bucket exists, the credentials and their rights, region and endpoint",
    )


def shown(place: str | os.PathLike[str]) -> str:
    """A folder or a URI as it may be shown."""
    return str(Uri(place)) if isinstance(place, str) and is_uri(place) else str(place)


def unknown(place: str, why: str) -> StateError:
    """The error for a URI that names no place for state; ``place`` and ``why`` may be shown."""
    return StateError(
        f"state cannot be kept at this URI: {why}",
        code="CS-723",
        where={"folder": place},
        next=f"give a path, or a URI with the scheme {REMOTE}:// or {LOCAL}://",
    )
