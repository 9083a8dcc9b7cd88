"""What can be said of a function without running it: where it is defined, and a hash of its code (decision 0049).

The hash changes where the code does, its constants, what it closes over, or the functions of its own module that it
calls; not with its name, its place in the file, or comments. It is a hint: code in other modules is not looked at.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import polars as pl

from crossstream.columns.functions import Function, serialized
from crossstream.storage.noted import NotedFunction

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version whose code the hashes are of."""
_DEPTH = 6
"""How far functions are followed into those that they call."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def noted_function(function: Function | Callable[..., Any] | pl.Expr) -> NotedFunction:
    """A function of the user as a state folder notes it.

    >>> noted_function(pl.col("amount") * 2).text
    '[(col("amount")) * (dyn int: 2)]'
    >>> noted_function(lambda value: value + 1).code == noted_function(lambda value: value + 1).code
    True
    >>> noted_function(lambda value: value + 1).code == noted_function(lambda value: value + 2).code
    False
    """
    with_key = ""
    if isinstance(function, Function):
        with_key = "with key " if function.with_key and function.call is not None else ""
        given: Any = function.call if function.expression is None else function.expression
    else:
        given = function
    if isinstance(given, pl.Expr):
        parts = serialized(given)
        exact = str(given) if parts is None else json.dumps(parts, sort_keys=True)
        return NotedFunction(str(given), digest([exact]), is_expression=True)
    code = list(_said(given, _DEPTH, set()))
    return NotedFunction(f"{with_key}{defined_at(given)}", digest([with_key, *code]) if code else "")


def defined_at(function: Any) -> str:
    """Where a callable is defined: ``module.qualname``; of an object that of its class."""
    if isinstance(function, functools.partial):
        return defined_at(function.func)
    known = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(known, "__module__", None)
    name = str(known.__qualname__)
    return name if module in (None, "builtins", "__main__") else f"{module}.{name}"


def digest(texts: Iterable[str]) -> str:
    """A hash over texts, in their order."""
    found = hashlib.blake2b(digest_size=12)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def _said(function: Any, depth: int, met: set[int]) -> Iterable[str]:
    """All that is known of what a callable does; nothing, where there is no code to look at."""
    if depth == 0 or id(function) in met:
        return
    met.add(id(function))
    if isinstance(function, functools.partial):
        yield from _said(function.func, depth, met)
        yield from (text for one in function.args for text in _value(one, depth, met))
        yield from (
            text
            for name in sorted(function.keywords)
            for text in (name, *_value(function.keywords[name], depth, met))
        )
    elif isinstance(function, MethodType):
        yield from _said(function.__func__, depth, met)
        yield from _fields_of(function.__self__, depth, met)
    elif isinstance(function, FunctionType):
        yield from _of_function(function, depth, met)
    elif isinstance(function, type):
        yield from _of_class(function, depth, met)
    elif (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield from _said(wrapped, depth, met)
    elif isinstance(called := vars(type(function)).get("__call__"), FunctionType):
        yield from _said(called, depth, met)
        yield from _fields_of(function, depth, met)


def _of_function(function: FunctionType, depth: int, met: set[int]) -> Iterable[str]:
    yield from _of_code(function.__code__)
    for default in function.__defaults__ or ():
        yield from _value(default, depth, met)
    for name, default in sorted((function.__kwdefaults__ or {}).items()):
        yield from (name, *_value(default, depth, met))
    for cell in function.__closure__ or ():
        try:
            yield from _value(cell.cell_contents, depth, met)
        except ValueError:  # it is empty yet
            continue
    module = function.__globals__.get("__name__")
    for name in sorted(_names(function.__code__)):
        known = function.__globals__.get(name)
        is_own = isinstance(known, FunctionType | type) and known.__module__ == module
        if is_own or (name in function.__globals__ and is_plain(known)):
            yield from (name, *_value(known, depth, met))


def _of_class(kind: type, depth: int, met: set[int]) -> Iterable[str]:
    """The methods of a class, as of one that makes processors; not those that it inherits."""
    for name, one in sorted(vars(kind).items()):
        inner = getattr(one, "__func__", one)
        if isinstance(inner, FunctionType):
            yield from (name, *_said(inner, depth - 1, met))
        elif not name.startswith("__") and is_plain(one):
            yield from (name, *_value(one, depth, met))


def _fields_of(owner: Any, depth: int, met: set[int]) -> Iterable[str]:
    """The plain fields of an object whose method is called."""
    if is_dataclass(owner) and not isinstance(owner, type):
        known = {one.name: getattr(owner, one.name, None) for one in fields(owner)}
    else:
        known = dict(getattr(owner, "__dict__", {})) if not isinstance(owner, type) else {}
    for name in sorted(known):
        yield from (name, *_value(known[name], depth, met))


def _value(value: Any, depth: int, met: set[int]) -> Iterable[str]:
    """A value that a function has beside its code; what is neither plain nor code is passed over."""
    if is_plain(value):
        yield plain_text(value)
    elif isinstance(value, pl.Expr):
        yield noted_function(value).code
    elif callable(value):
        yield from _said(value, depth - 1, met)


def _of_code(code: CodeType) -> Iterable[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_kwonlyargcount))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield plain_text(constant)


def _names(code: CodeType) -> set[str]:
    """The names that code and the code in it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def is_plain(value: Any) -> bool:
    """Whether a value is text, a number, or a collection of such that does not change."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)


def plain_text(value: Any) -> str:
    """A plain value as text that is the same in every process; sets have no order of their own."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(plain_text, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(plain_text, value))})"
    return f"{type(value).__name__} {value!r}"
