"""Pickles for other processes, with the classes that cannot be imported there, also those of msgspec.

cloudpickle sends such classes (of the application's main file, of a notebook) along with their values, but

- of a `msgspec.Struct` class only an empty shell arrives: fields are made where the class is made;
- msgspec leaves a cache that cannot be pickled on every dataclass, Enum and TypedDict it has seen;
- its `Meta` cannot be pickled;
- a dataclass arrives with copies of the sentinel `dataclasses.MISSING`, which msgspec takes for defaults;
- a generic NamedTuple has a method of `typing.Generic` that pickle does not find in Python 3.11,
- annotations kept as text (``from __future__ import annotations``) cannot be resolved on the other side.

`dumps` handles all of these. Plain `pickle.loads` reads what it writes. Classes of Protobuf messages travel as data.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import types
import typing
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from cloudpickle import cloudpickle

from crossstream.error_codes import refuse

_PROTOCOL = 5
_CACHE = "__msgspec_cache__"
_MADE_BY_MSGSPEC = ("__slots__", "__match_args__", _CACHE)
_LIMITS = tuple(name for name in dir(msgspec.Meta) if not name.startswith("_"))
_SENTINELS = {id(getattr(dataclasses, name)): name for name in ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")}
_StructMeta: type = type(msgspec.Struct)
_GENERIC_ITEM = getattr(vars(typing.Generic)["__class_getitem__"], "__func__", None)


def dumps(value: Any) -> bytes:
    """The pickle of ``value`` (protocol 5). Raises what pickle raises."""
    file = io.BytesIO()
    _Pickler(file, _PROTOCOL).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in _SENTINELS:
            return _SENTINELS[id(obj)]
        if obj is _GENERIC_ITEM:
            return _generic_item, ()
        if isinstance(obj, msgspec.Meta):
            return _make_meta, (
                {name: limit for name in _LIMITS if (limit := getattr(obj, name)) is not None},
            )
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented or not isinstance(obj, type) or len(reduced) < 3:
            return reduced  # found by name, a function, or one of Python's own such as the type of None
        make, arguments, (namespace, slots), *rest = reduced
        namespace = {name: entry for name, entry in namespace.items() if name != _CACHE}
        if "__annotations__" in namespace:
            namespace["__annotations__"] = _resolved(obj, namespace["__annotations__"])
        if isinstance(obj, _StructMeta):
            return _reduce_struct(obj, arguments, namespace)
        return make, arguments, (namespace, slots), *rest


def _generic_item() -> Any:
    return _GENERIC_ITEM


def _resolved(cls: type, annotations: dict[str, Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # names that exist nowhere: then they are not needed here either
        return annotations
    return {name: hints[name] for name in annotations}


def _reduce_struct(cls: Any, arguments: tuple[Any, ...], namespace: dict[str, Any]) -> tuple[Any, ...]:
    """Made from its fields first, and given methods and types after: they may refer to the class itself."""
    name, bases, tracker = arguments[1], arguments[2], arguments[4]
    own = [
        field for field in msgspec.structs.fields(cls) if field.name in namespace.get("__annotations__", ())
    ]
    fields = [(field.name, field.encode_name, _default(field)) for field in own]
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in dir(config) if not name.startswith("_")}
    options["kw_only"] = any(field.name not in cls.__match_args__ for field in own)
    state = {name: entry for name, entry in namespace.items() if name not in _MADE_BY_MSGSPEC}
    late = state.pop("__post_init__", None)
    if late not in (None, _post_init):  # that of a class that was shipped here itself
        state["_shipped_post_init"] = late
    making = (name, bases, fields, options, late is not None, tracker)
    return _make_struct, making, (state, {}), None, None, cloudpickle._class_setstate


def _make_meta(limits: dict[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**limits)


def _default(field: msgspec.structs.FieldInfo) -> tuple[str, Any] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        return "default_factory", field.default_factory
    return None if field.default is msgspec.NODEFAULT else ("default", field.default)


def _make_struct(
    name: str,
    bases: tuple[type, ...],
    fields: list[tuple[str, str, tuple[str, Any] | None]],
    options: dict[str, Any],
    late: bool,
    tracker: str,
) -> Any:
    """The class, or the one that was made here of the same original before."""
    namespace: dict[str, Any] = {"__annotations__": {field: Any for field, _, _ in fields}}
    for field, _, default in fields:
        if default is not None:
            kind, value = default
            namespace[field] = msgspec.field(**{kind: value})
    if late:
        namespace["__post_init__"] = _post_init
    options = {**options, "rename": {field: encoded for field, encoded, _ in fields}}
    made = types.new_class(
        name, bases, {"metaclass": _StructMeta, **options}, lambda empty: empty.update(namespace)
    )
    return cloudpickle._lookup_class_or_track(tracker, made)


def _post_init(self: Any) -> None:
    """msgspec looks for the method while it makes the class, when the real one is not there yet."""
    self._shipped_post_init()


# Classes of Protobuf messages

Shipped = tuple[str, str, str, tuple[bytes, ...]]


def shipped(message: Any) -> Shipped:
    """A class of messages as data: its module and name, and the files that describe it."""
    files: dict[str, bytes] = {}

    def add(file: Any) -> None:
        for one in file.dependencies:
            add(one)
        files.setdefault(file.name, file.serialized_pb)

    add(message.DESCRIPTOR.file)
    return message.__module__, message.__qualname__, message.DESCRIPTOR.full_name, tuple(files.values())


@lru_cache(maxsize=512)
def received(message: Shipped) -> Any:
    """The class, from its module where there is one, else made of the files."""
    module, name, full_name, files = message
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if found.DESCRIPTOR.full_name == full_name:
            return found
    except (ImportError, AttributeError):
        pass
    return message_class(full_name, files, shared=True)


def message_class(full_name: str, files: Sequence[bytes], *, shared: bool = False) -> Any:
    """The class of a message, made of the files that describe it. ``shared``: the one of the whole process."""
    try:
        from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]
    except ImportError as error:
        what = f"Protobuf is not installed here: {error}"
        raise refuse("CS-201", what, 'pip install "crossstream[protobuf]"') from error
    pool = descriptor_pool.Default() if shared else descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))
