"""Which bytes of a key say where its row goes, where rows meet that came on several ways.

These need not be the bytes that the key travels in: the same key on another way may be in another serde.
"""

from __future__ import annotations

from typing import Any

from crossstream.algebra.values import Bytes, Values
from crossstream.errors import SerdeError
from crossstream.serdes import Serde, arrays, calls
from crossstream.serdes.kept import is_kept


def placing_bytes(keys: Values, by: Serde) -> Bytes:
    """The keys in a serde; where it refuses one, or none is known, in bytes that equal keys share."""
    if is_kept(by):
        return arrays.binary_rows(list(map(_of_object, keys.objects())))
    try:
        return keys.wire(by)
    except SerdeError:
        return arrays.binary_rows([_written(by, key) for key in keys.objects()])


def _written(by: Serde, key: Any) -> bytes | None:
    try:
        return calls.serialize(by, key)
    except SerdeError:
        return _of_object(key)


def _of_object(key: Any) -> bytes | None:
    """The same for equal keys of plain JSON, in every process; others may have them too."""
    if key is None:
        return None
    if isinstance(key, str):
        return str.encode(key, errors="surrogatepass")
    if isinstance(key, int | float):
        return b"nan" if key != key else b"%d" % hash(key)
    if isinstance(key, tuple | list):
        return b",".join(_of_object(part) or b"" for part in key)
    if isinstance(key, dict):
        pairs = [(_of_object(name) or b"", _of_object(entry) or b"") for name, entry in key.items()]
        return b",".join(sorted(name + b":" + entry for name, entry in pairs))
    return b""
