"""The short forms of settings: Python types as serdes, and settings by keyword instead of in an option object."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import polars as pl
import pyarrow as pa

from crossstream import serdes
from crossstream.errors import TopologyError, caller_location
from crossstream.serdes import Serde

T = TypeVar("T")

AsSerde: TypeAlias = Serde | type[Any] | Mapping[str, Any]
"""A serde, a dict of Polars types, or a type that has a serde: str, bytes, int, float, bool, UUID, dict, list, or a
class with fields."""

SerdeField: TypeAlias = Any
"""The type of a field of an option object: `AsSerde` when it is given, and a serde when it is read."""

_PLAIN: Mapping[Any, Serde] = MappingProxyType(
    {
        str: serdes.string(),
        bytes: serdes.bytes(),
        int: serdes.int64(),
        float: serdes.float64(),
        bool: serdes.boolean(),
        UUID: serdes.uuid(),
        dict: serdes.json(),
        list: serdes.json(),
    }
)

TYPES = "str, bytes, int, float, bool, UUID, dict, list, or a class with fields, such as a dataclass"
"""The types that stand for a serde, as errors list them."""


def as_serde(given: Any) -> Any:
    """The serde of a type or of a schema; anything else unchanged. int and float have 64 bits.

    >>> as_serde(str) == serdes.string(), as_serde(dict) == serdes.json()
    (True, True)
    """
    if isinstance(given, type) and given in _PLAIN:
        return _PLAIN[given]
    is_schema = isinstance(given, pl.Schema | pl.Struct | pa.Schema) or (isinstance(given, dict) and given)
    return serdes.json(given) if is_schema or _has_fields(given) else given


def _has_fields(given: Any) -> bool:
    """Whether it is a class with declared fields, or a generic type such as ``list[Order]``."""
    if typing.get_origin(given) is not None:
        return True
    if not isinstance(given, type) or callable(getattr(given, "deserialize", None)):
        return False
    is_record = (
        dataclasses.is_dataclass(given) or typing.is_typeddict(given) or hasattr(given, "_field_defaults")
    )
    return is_record or hasattr(given, "__struct_fields__") or hasattr(given, "__attrs_attrs__")


def settings_of(operator: str, setting: str, option: T | None, kind: type[T], **short: Any) -> T | None:
    """The option object with the settings that are given by keyword; None if neither is given.

    Raises CS-101 for a setting that both give, and whatever ``kind`` refuses.
    """
    given = {name: value for name, value in short.items() if value is not None}
    if not given:
        return option
    for name in given:
        if option is not None and getattr(option, name) is not None:
            raise TopologyError(
                f"{operator} gets {name} twice: {name}=… and {setting}={kind.__name__}({name}=…)",
                code="CS-101",
                where=caller_location(operator),
                next="keep one of them",
            )
    if option is None:
        return kind(**given)
    return dataclasses.replace(option, **given)  # type: ignore[type-var]
