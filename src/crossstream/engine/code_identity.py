"""Which code an application runs: bytes that stay the same, also in another process, as long as the code does.

Pickles will not do: two of equal functions may differ (sets have no order, classes get numbers by chance), and of what
can be imported they have the name alone, whatever it does by now. So functions are read here: what they are compiled
to, what they hold, and the functions, classes and values that they name, from module to module, with the text of each
module on the way. Of the standard library and of installed packages the version has to do. Decision 0007.
"""

from __future__ import annotations

import copyreg
import dis
import logging
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import xxhash

import crossstream
from crossstream.topology.graph import Location

_LIMIT = 200_000
"""Objects that are looked at; where there are more, the code is not told."""

_ATOMS = (type(None), bool, int, float, complex, str, type(...))
_BY_NAME = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
_PASSING = frozenset(
    {"__doc__", "__msgspec_cache__", "_abc_impl", "__static_attributes__", "__firstlineno__"}
)
"""Entries of classes that do not say what they do."""

_CODE = ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags")
_PARAMETERS = ("co_argcount", "co_posonlyargcount", "co_kwonlyargcount")
_PYTHON_IN_POLARS = b"PLPYFN"


class Untold(Exception):
    """There is code that cannot be read."""


def code_identity(*parts: object) -> bytes:
    """16 bytes for all the code that is in these objects; none where it cannot be told.

    Values that functions hold count as code. What cannot be sent to a worker (a lock, a
    connection) counts by its class, and an iterator, which moves on, too.
    """
    try:
        return _Reading().of((crossstream.__version__, sys.version, parts))
    except Exception:  # whatever the objects' own methods raise, and nesting that is too deep
        return b""


class _Reading:
    """The digests of objects, each made once."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._kept: list[object] = []
        self._open: set[int] = set()
        self._owners: dict[str, bytes | None] = {"crossstream": b"crossstream"}
        self._texts: dict[str, bytes] = {}
        self._modules: set[tuple[str, tuple[str, ...]]] = set()

    def of(self, value: Any) -> bytes:
        if type(value) in _ATOMS:
            return _digest([type(value).__name__.encode(), repr(value).encode("utf-8", "surrogatepass")])
        place = id(value)
        if place in self._open:
            return b"itself"
        if place not in self._known:
            if len(self._kept) >= _LIMIT:
                raise Untold
            self._kept.append(value)  # nothing else may come to its place
            self._open.add(place)
            self._known[place] = _digest([_name(type(value)), *self._parts(value)])
            self._open.remove(place)
        return self._known[place]

    def _all(self, values: Iterable[Any]) -> Iterator[bytes]:
        return map(self.of, values)

    def _parts(self, value: Any) -> Iterable[bytes]:
        kind = type(value)
        if kind is bytes:
            return (value,)
        if kind is tuple or kind is list:
            return self._all(value)
        if kind is set or kind is frozenset:
            return sorted(self._all(value))
        if kind is dict or kind is types.MappingProxyType:
            return self._entries(value)
        if isinstance(value, Location | types.ModuleType | logging.Logger | typing.TypeVar):
            return ()
        if hasattr(kind, "__next__"):
            return ()
        return self._code_parts(value)

    def _code_parts(self, value: Any) -> Iterable[bytes]:
        if isinstance(value, types.CodeType):
            return self._compiled(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.MethodType):
            return self._all((value.__func__, value.__self__))
        if isinstance(value, types.CellType):
            return self._all(_content(value))
        if isinstance(value, property):
            return self._all((value.fget, value.fset, value.fdel))
        if isinstance(value, staticmethod | classmethod):
            return (self.of(value.__func__),)
        if isinstance(value, _BY_NAME):
            holder = getattr(value, "__self__", None)
            return (_name(value), b"" if isinstance(holder, types.ModuleType) else self.of(holder))
        return self._object(value)

    def _entries(self, entries: Mapping[Any, Any]) -> Iterator[bytes]:
        for name, value in entries.items():
            yield from (self.of(name), self.of(value))

    def _compiled(self, code: types.CodeType) -> Iterator[bytes]:
        yield from self._all(getattr(code, name) for name in (*_CODE, *_PARAMETERS))
        yield getattr(code, "co_exceptiontable", b"")

    def _function(self, function: types.FunctionType) -> Iterator[bytes]:
        module = function.__globals__.get("__name__", "")
        owner = self._owner(module)
        if owner is None:
            yield self._text(module)
            yield from self._named(function.__code__, function.__globals__)
            yield self.of(function.__code__)
        else:
            yield from (owner, _name(function))
        held = (function.__defaults__, function.__kwdefaults__, function.__closure__, function.__dict__)
        yield from self._all(held)

    def _named(self, code: types.CodeType, space: Mapping[str, Any]) -> Iterator[bytes]:
        """What the code finds by its names, and by those of its inner functions."""
        codes = list(_nested(code))
        names = tuple(dict.fromkeys(name for one in codes for name in one.co_names))
        for name in names:
            if name in space:
                yield name.encode()
                yield from self._reached(space[name], names)
        for one in codes:
            for module in _imported(one):
                yield from self._reached(module, names)

    def _reached(self, value: Any, names: tuple[str, ...]) -> Iterator[bytes]:
        """Of a module what may be meant by an attribute of one of these names."""
        if not isinstance(value, types.ModuleType):
            yield self.of(value)
            return
        module = value.__name__
        owner = self._owner(module)
        yield module.encode() if owner is None else owner
        if owner is None and (module, names) not in self._modules:
            self._modules.add((module, names))
            yield self._text(module)
            for name in names:
                if name in vars(value):
                    yield name.encode()
                    yield from self._reached(vars(value)[name], names)

    def _class(self, kind: type) -> Iterator[bytes]:
        owner = self._owner(kind.__module__)
        yield _name(kind)
        if owner is not None:
            yield owner
            return
        yield self._text(kind.__module__)
        yield from self._all((type(kind), kind.__bases__))
        yield from self._entries({name: entry for name, entry in vars(kind).items() if name not in _PASSING})

    def _object(self, value: Any) -> Iterator[bytes]:
        yield self.of(type(value))
        if isinstance(value, msgspec.Meta):
            yield repr(value).encode()
            return
        yield from self._all([value.__wrapped__] if "__wrapped__" in getattr(value, "__dict__", ()) else ())
        try:
            known = copyreg.dispatch_table.get(type(value))
            reduced = value.__reduce_ex__(4) if known is None else known(value)
        except Exception:  # whatever its own methods raise: it is none that could be sent
            return
        if isinstance(reduced, str):
            yield reduced.encode()
            return
        make, arguments, *rest = reduced
        state, items, entries = (*rest, None, None, None)[:3]
        if isinstance(value, pl.Expr) and _PYTHON_IN_POLARS in state:
            raise Untold
        yield from self._all((make, arguments, state))
        yield from self._all(items or ())
        yield from self._all(entries or ())

    def _text(self, module: str) -> bytes:
        """Of the file of a module; what is typed in has none."""
        if module not in self._texts:
            file = getattr(sys.modules.get(module), "__file__", None)
            self._texts[module] = b"" if file is None else _digest([Path(file).read_bytes()])
        return self._texts[module]

    def _owner(self, module: str) -> bytes | None:
        """Which version of which package the module belongs to; None if it is the user's own."""
        root = module.partition(".")[0]
        if root not in self._owners:
            self._owners[root] = root.encode() if root in sys.stdlib_module_names else _installed(root)
        return self._owners[root]


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _name(named: Any) -> bytes:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}".encode()


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing yet
        return ()


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _imported(code: types.CodeType) -> Iterator[types.ModuleType]:
    """The modules that the code imports while it runs, beside those of the standard library."""
    steps = list(dis.get_instructions(code))
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME" and step.argval.partition(".")[0] not in sys.stdlib_module_names:
            if steps[place - 2].argval or step.argval not in sys.modules:  # relative, or not there yet
                raise Untold
            module = sys.modules[step.argval]
            if any(name not in vars(module) for name in steps[place - 1].argval or () if name != "*"):
                raise Untold
            yield module


def _installed(root: str) -> bytes | None:
    """What is known of the files of an installed package; None if it is not installed."""
    module = sys.modules.get(root)
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    if not any({"site-packages", "dist-packages"} & set(Path(place).parts) for place in places):
        return None
    try:
        found = [metadata.distribution(root)]
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(root, [])
        found = [metadata.distribution(name) for name in sorted(set(names))]
    if not found:
        return None
    return _digest([f"{one.version} {one.read_text('RECORD')}".encode() for one in found])
