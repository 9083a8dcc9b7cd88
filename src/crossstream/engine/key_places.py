"""Which bytes of a key say where its row goes, where rows meet that came on several ways.

These need not be the bytes that the key travels in: what a function made travels pickled (decision 0005), and the same
key on another way is in the serde of a topic.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

from crossstream.algebra.values import Bytes, Values
from crossstream.errors import SerdeError
from crossstream.serdes import Serde, arrays, calls
from crossstream.serdes.internal import pickled
from crossstream.serdes.serde import alike


def placing_bytes(keys: Values, by: Serde) -> Bytes:
    """The keys in a serde; where it refuses one, or none is known (pickled), in bytes that equal keys share."""
    if alike(by, pickled()):
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
    """The same for equal objects, in every process; others may have them too.

    Python's own hash is that for numbers only, and pickles of equal objects may differ.
    """
    if key is None:
        return None
    if isinstance(key, str):
        return str.encode(key, errors="surrogatepass")
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    if isinstance(key, int | float | complex | Decimal | Fraction):
        with suppress(TypeError):  # a Decimal that is no number has none
            return b"%d" % hash(key)
    if isinstance(key, tuple | list):
        return b",".join(_of_object(one) or b"" for one in key)
    return b""
