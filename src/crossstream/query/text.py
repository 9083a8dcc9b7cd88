"""Keys and values as text and as JSON, and text as keys: for the command line and the page.

JSON has no bytes: bytes that are UTF-8 are shown as text, others as ``{"base64": …}``; both can be typed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from crossstream.error_codes import refuse
from crossstream.errors import SerdeError
from crossstream.serdes import Serde
from crossstream.serdes.avro.serde import Avro
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde
from crossstream.serdes.registry.avro import ConfluentAvro
from crossstream.serdes.registry.json import ConfluentJson

if TYPE_CHECKING:
    from crossstream.query.store import StoreReader

_BASE64 = "base64"
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON allows in text, and a terminal obeys."""
_SHOWN = 100
"""Characters of a text that an error shows."""
_DIGITS = re.compile("[0-9]{1,18}")

_PAIRS = msgspec.json.Decoder(tuple[msgspec.Raw, msgspec.Raw])


def to_plain(value: Any) -> Any:
    """The value as JSON can hold it; dataclasses and structs become dicts."""
    if isinstance(value, bytes | bytearray | memoryview):
        return from_bytes(bytes(value))
    if isinstance(value, LeftOrRight):
        return list(map(to_plain, value))
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def to_json(value: Any) -> str:
    """The value as compact JSON, `harmless`."""
    return harmless(msgspec.json.encode(to_plain(value)).decode())


def harmless(text: str) -> str:
    """JSON with escapes for all that a terminal would obey."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def from_bytes(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def to_bytes(value: Any) -> bytes | None:
    """Reverses `from_bytes`. Raises `ValueError`."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error
    raise ValueError('write bytes as text, or as {"base64": …}')


def from_plain(serde: Serde, value: Any) -> Any:
    """What the serde takes for a JSON value. Raises `ValueError`."""
    if value is None:
        return None
    if serde.name == "bytes":
        return to_bytes(value)
    if serde.name != "uuid":
        return value
    if not isinstance(value, str):
        raise ValueError(f"write a UUID as text, not as {to_json(value)}")
    return UUID(value)


def rows_of_key(store: StoreReader, key: Any, time: int | datetime | None = None) -> list[tuple[Any, Any]]:
    """The row of a key, of a versioned store at a time; or its records, windows or sessions."""
    if store.by_time is not None:
        found = store.fetch(key)
        places = store.by_time.places(found)
        return [((key, *place), value) for place, (_, value) in zip(places, found, strict=True)]
    value = store.get(key, time)
    return [] if value is None else [(key, value)]


def rows_of(store: StoreReader, operation: str, texts: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """All rows, or a ``range`` or ``prefix`` of the keys that the texts mean; an empty text is no limit."""
    keys = [parse_key(store.key, text) if text else None for text in texts]
    if operation == "range":
        return store.range(*keys)
    return store.prefix(keys[0]) if operation == "prefix" and keys[0] is not None else store.all()


def whole_number(text: str) -> int | None:
    """The number that plain digits mean; None for anything else, and for more digits than any time or batch has.

    >>> whole_number("17"), whole_number("-1"), whole_number("9" * 5000)
    (17, None, None)
    """
    return int(text) if _DIGITS.fullmatch(text) else None


def parse_key(serde: Serde | None, text: str) -> Any:
    """The key that a text means; `ConfigError` CS-281 if it cannot be a key of the store.

    For a JSON key it is JSON if the serde accepts it, else a text: quotes make it a text in any case.
    """
    try:
        if serde is None:
            raise ValueError("its keys have no serde")
        return _key(serde, text)
    except (ValueError, KeyError, ArithmeticError, RecursionError, SerdeError) as error:
        what = f"{_short(text)} is not a key of this store: {_why(error)}"
        step = "type a key as `crossstream query STATE_DIR STORE` shows it"
        raise refuse("CS-281", what, step, serde=None if serde is None else serde.name) from error


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _why(error: Exception) -> str:
    return str(getattr(error, "what", error))[: 4 * _SHOWN]


def _key(serde: Serde, text: str) -> Any:
    name = serde.name
    if isinstance(serde, LeftOrRightSerde):
        return _left_or_right(serde, text.encode())
    if isinstance(serde, ConfluentJson):
        return _key(serde.inner, text)
    if isinstance(serde, Avro | ConfluentAvro):
        return _avro_key(serde, text)
    if name.startswith("json"):
        with suppress(SerdeError):
            key = serde.deserialize(text.encode())
            if key is not None:
                return key
        return serde.deserialize(json.dumps(text).encode())
    if name == "bytes":
        with suppress(ValueError):
            return to_bytes(json.loads(text)) if text.startswith("{") else text.encode()
        return text.encode()
    if name.startswith("int"):
        return int(text)
    if name.startswith("float"):
        return float(text)
    if name == "boolean":
        return {"true": True, "false": False}[text.lower()]
    return from_plain(serde, text)


def _avro_key(serde: Serde, text: str) -> Any:
    """What the text is as JSON if the schema takes it, else the text itself, or the UUID that it is."""
    for read in (json.loads, str, UUID):
        with suppress(ValueError, SerdeError):
            key = read(text)
            serde.serialize(key)
            if key is not None:
                return key
    raise ValueError("the schema of the keys does not take it")


def _left_or_right(serde: LeftOrRightSerde, text: bytes) -> LeftOrRight:
    """A key of one of two tables, as `to_json` shows it. Raises `ValueError`, `SerdeError`."""
    try:
        left, right = map(bytes, _PAIRS.decode(text))
    except msgspec.MsgspecError as error:
        raise ValueError("a key of one of two tables is [key, null] or [null, key]") from error
    key = LeftOrRight(_from_json(serde.left, left), _from_json(serde.right, right))
    serde.serialize(key)
    return key


def _from_json(serde: Serde, text: bytes) -> Any:
    if isinstance(serde, LeftOrRightSerde) and text != b"null":
        return _left_or_right(serde, text)
    return serde.deserialize(text) if serde.name.startswith("json") else from_plain(serde, json.loads(text))
