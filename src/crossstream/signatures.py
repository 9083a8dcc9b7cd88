"""Signatures: refuses calls and settings that do not fit, by name; how functions can be called."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from types import MappingProxyType
from typing import Any, ParamSpec, TypeGuard, TypeVar, cast

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NO_HINTS: Mapping[str, str] = MappingProxyType({})


def keyword_settings(code: str, *, hints: Mapping[str, str] = _NO_HINTS) -> Callable[[type[T]], type[T]]:
    """Makes a dataclass raise the error of ``code`` where Python's own ``__init__`` would raise a bare `TypeError`.

    ``hints`` maps foreign names to advice; a setting in ``hints`` is never proposed.
    """

    def decorate(cls: type[T]) -> type[T]:
        build = settings_error(code, cls.__name__, hints)
        cls.__init__ = refuse_calls(build)(cls.__init__)  # type: ignore[method-assign]
        return cls

    return decorate


def refuse_calls(
    build: Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any], str], CrossStreamError],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a function raise a `CrossStreamError` where Python would raise a bare `TypeError` for its arguments.

    ``build`` makes the error from the function, the positional and keyword arguments, and Python's message.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **settings: P.kwargs) -> T:
            try:
                signature.bind(*args, **settings)
            except TypeError as fault:
                raise build(function, args, settings, str(fault)) from None
            return function(*args, **settings)

        return call

    return decorate


def called_as(other: F) -> Callable[[Callable[..., Any]], F]:
    """Says to type checkers that a method is called as another one, which has overloads."""
    return lambda function: cast(F, function)


def settings_error(
    code: str, owner: str, hints: Mapping[str, str] = _NO_HINTS
) -> Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any], str], CrossStreamError]:
    """For `refuse_calls` of a method: an error about the settings of ``owner``, with advice."""

    def build(
        function: Callable[..., Any], args: tuple[Any, ...], settings: Mapping[str, Any], fault: str
    ) -> CrossStreamError:
        known = list(inspect.signature(function).parameters.values())[1:]
        names = [one.name for one in known]
        unknown = [name for name in settings if name not in names]
        required = [one.name for one in known[len(args) - 1 :] if one.default is one.empty]
        missing = [name for name in required if name not in settings]
        if len(args) > 1 and all(one.kind is one.KEYWORD_ONLY for one in known):
            what = f"{owner} takes keyword arguments only"
        elif unknown:
            what = f"{owner} has no setting {', '.join(map(repr, unknown))}"
        elif missing:
            what = f"{owner} needs {', '.join(missing)}"
        else:
            what = f"{owner} cannot be called like this: {fault}"
        proposed = [name for name in names if name not in hints]
        return refuse(code, what, _advice(owner, unknown, proposed, hints), **caller_location())

    return build


def _advice(owner: str, unknown: Iterable[str], names: list[str], hints: Mapping[str, str]) -> str:
    for name in unknown:
        plain = name.lower().replace(".", "_").replace("-", "_")
        if plain in hints:
            return hints[plain]
        close = difflib.get_close_matches(plain, names, n=3, cutoff=0.6)
        if close:
            return f"did you mean {' or '.join(close)}?"
    return f"write {owner}({', '.join(f'{name}=…' for name in names)})"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, also of numpy, but not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_partitions(owner: str, partitions: object) -> None:
    """Raises `TopologyError` CS-101 for anything but None or a positive int."""
    if partitions is not None and (not is_whole(partitions) or partitions < 1):
        what = f"{owner}(partitions={partitions!r}) is not a number of partitions"
        raise refuse("CS-101", what, "give a positive int, or leave it out", **caller_location())


def deferred_kind(function: Callable[..., Any]) -> str | None:
    """``"async def"`` or ``"yield"``, if a call of ``function`` runs nothing yet; None if it runs.

    >>> deferred_kind(lambda lines: (yield lines)), deferred_kind(len)
    ('yield', None)
    """
    while isinstance(function, functools.partial):
        function = function.func
    is_object = not (inspect.isroutine(function) or isinstance(function, type))
    called = type(function).__call__ if is_object else function
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        return "async def"
    return "yield" if inspect.isgeneratorfunction(called) else None


def own_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; of a wrapper that takes any arguments, that of the wrapped function.

    Raises TypeError or ValueError, as `inspect.signature` does, if Python does not know it.
    """
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:
        return inspect.signature(function)
    passes_on = any(one.kind is one.VAR_POSITIONAL for one in own.parameters.values())
    return inspect.signature(function) if passes_on else own


def fits_call(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    """Whether ``function`` takes that many positional arguments; True if Python does not know."""
    try:
        own_signature(function).bind(*parameters)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def required_arguments(function: Callable[..., Any]) -> int | None:
    """How many positional arguments a function requires; None if it takes any number, or Python does not know."""
    try:
        parameters = own_signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional)
