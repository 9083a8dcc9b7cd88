"""Keys and values between text and serdes: what a person types, and what JSON can hold.

JSON has no bytes: bytes that are UTF-8 are shown as text, others as ``{"base64": …}``; both are understood.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from crossstream import serdes
from crossstream.errors import ConfigError, SerdeError
from crossstream.serdes import Serde
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde

_BASE64 = "base64"


def serde_named(name: str) -> Serde:
    """The serde that a command line names."""
    serde: Serde = getattr(serdes, name)()
    return serde


def to_plain(value: Any) -> Any:
    """What msgspec or json can write; dataclasses and structs become dicts."""
    if isinstance(value, bytes | bytearray | memoryview):
        return from_bytes(bytes(value))
    if isinstance(value, LeftOrRight):
        return list(map(to_plain, value))
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def to_json(value: Any) -> str:
    """A value as compact JSON."""
    return msgspec.json.encode(to_plain(value)).decode()


def from_bytes(data: bytes) -> Any:
    """Bytes as text, or as ``{"base64": …}`` where they are none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def to_bytes(value: Any) -> bytes | None:
    """The bytes that `from_bytes` shows as ``value``. Raises `ValueError`."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error
    raise ValueError('bytes are written as text, or as {"base64": …}')


def from_plain(serde: Serde, value: Any) -> Any:
    """What a serde takes, from what JSON holds. Raises `ValueError`."""
    if value is None:
        return None
    if serde.name == "bytes":
        return to_bytes(value)
    return _uuid(value) if serde.name == "uuid" else value


def _uuid(value: Any) -> UUID:
    if not isinstance(value, str):
        raise ValueError(f"a UUID is written as text, not as {to_json(value)}")
    return UUID(value)


def parse_keys(serde: Serde | None, text: str) -> list[Any]:
    """The keys that a person may mean, the likeliest first: what is shown like this may be JSON, or a text like it.

    Raises `ConfigError` CS-281 if it is no key.
    """
    try:
        if serde is None:
            raise ValueError("its keys have no serde")
        return _keys(serde, text)
    except (ValueError, KeyError, SerdeError) as error:
        raise ConfigError(
            f"{text!r} is not a key of this store: {getattr(error, 'what', error)}",
            code="CS-281",
            where={"serde": None if serde is None else serde.name},
            next="type a key as `crossstream query STATE_DIR STORE` shows it",
        ) from error


def parse_key(serde: Serde | None, text: str) -> Any:
    """The likeliest of `parse_keys`."""
    return parse_keys(serde, text)[0]


def _keys(serde: Serde, text: str) -> list[Any]:
    name = serde.name
    if isinstance(serde, LeftOrRightSerde):
        return [_of_either(serde, text.encode())]
    if name.startswith("json"):
        return _accepted(serde.deserialize, [text.encode(), json.dumps(text).encode()])
    if name == "bytes":
        return _accepted(to_bytes, [*_objects(text), text])
    if name.startswith("int"):
        return [int(text)]
    if name.startswith("float"):
        return [float(text)]
    if name == "boolean":
        return [{"true": True, "false": False}[text.lower()]]
    return [from_plain(serde, text)]


def _accepted(reading: Callable[[Any], Any], forms: Sequence[Any]) -> list[Any]:
    """What these forms of a key mean. Raises `ValueError`, `SerdeError`, the first of all, if none means anything."""
    found, refusals = [], []
    for form in forms:
        try:
            key = reading(form)
        except (ValueError, SerdeError) as error:
            refusals.append(error)
        else:
            found += [] if key is None else [key]
    if not found:
        raise refusals[0]
    return found


def _objects(text: str) -> list[dict[str, Any]]:
    """The object that a text is as JSON, if it is one."""
    with suppress(ValueError):
        value = json.loads(text)
        return [value] if isinstance(value, dict) else []
    return []


def _of_either(serde: LeftOrRightSerde, text: bytes) -> LeftOrRight:
    """A key of one of two tables, as `to_json` shows it. Raises `ValueError`, `SerdeError`."""
    try:
        left, right = map(bytes, msgspec.json.decode(text, type=tuple[msgspec.Raw, msgspec.Raw]))
    except msgspec.MsgspecError as error:
        raise ValueError("a key of one of two tables is [key, null] or [null, key]") from error
    key = LeftOrRight(_of_json(serde.left, left), _of_json(serde.right, right))
    serde.serialize(key)
    return key


def _of_json(serde: Serde, text: bytes) -> Any:
    if isinstance(serde, LeftOrRightSerde) and text != b"null":
        return _of_either(serde, text)
    return serde.deserialize(text) if serde.name.startswith("json") else from_plain(serde, json.loads(text))


def parse_time(text: str) -> int | datetime:
    """Milliseconds since the epoch, or an ISO time (UTC where it names no zone); `ConfigError` CS-281."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is not a time",
            code="CS-281",
            next="give milliseconds since the epoch, or a time such as 2026-01-31T12:00:00",
        ) from error
