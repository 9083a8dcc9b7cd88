"""NaN and infinities in objects: JSON has no such numbers, and msgspec writes null in their place without a word.

So a text without a null holds none. Of other objects their MessagePack, which has every float in 9 bytes, shows whether
one may be among them; only those are searched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from crossstream.errors import SerdeError
from crossstream.serdes import refusals
from crossstream.serdes.json_shapes import KEPT

_KEPT = (*KEPT, msgspec.Raw)
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How such a float begins in MessagePack; other bytes may as well."""


def check_finite(values: Sequence[Any], texts: Iterable[bytes | None], serde: str) -> None:
    """Raises `SerdeError` (CS-403) for the first value in which a float is not finite. ``texts``: their JSON."""
    if any(text is not None and b"null" in text for text in texts) and _is_suspect(values):
        for value in filter(_is_suspect, values):
            if (refusal := not_finite(value, serde)) is not None:
                raise refusal


def not_finite(value: Any, serde: str) -> SerdeError | None:
    """The error of a value in which a float is not finite; None if all are."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_KEPT)
    except Exception:  # it has no JSON at all
        return None
    pending = [("", plain)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return refusals.not_finite(serde, plain, item, path)
        if isinstance(item, dict):
            pending += [(f"{path}.{name}" if path else str(name), one) for name, one in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            pending += [(f"{path}[]", one) for one in item]
    return None


def _is_suspect(value: Any) -> bool:
    try:
        return _NOT_FINITE.search(msgspec.msgpack.encode(value)) is not None
    except Exception:  # MessagePack has no integers of more than 64 bits
        return True
