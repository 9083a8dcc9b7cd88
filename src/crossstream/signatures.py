"""What all option objects share: keyword arguments, the unknown ones refused by name."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from numbers import Integral
from types import MappingProxyType
from typing import Any, ParamSpec, TypeGuard, TypeVar

from crossstream.errors import CrossStreamError, TopologyError
from crossstream.location import here

P = ParamSpec("P")
T = TypeVar("T")

_NO_HINTS: Mapping[str, str] = MappingProxyType({})


def keyword_settings(
    error: type[CrossStreamError],
    code: str,
    *,
    positional: int = 0,
    hints: Mapping[str, str] = _NO_HINTS,
) -> Callable[[type[T]], type[T]]:
    """Makes a dataclass raise ``error`` where Python's own ``__init__`` would raise a bare `TypeError`.

    That is for an unknown keyword (``hints`` maps foreign names to the setting to use instead), a missing
    one, and more than ``positional`` positional arguments. A setting that is in ``hints`` itself is not proposed.
    """

    def decorate(cls: type[T]) -> type[T]:
        known = [item for item in fields(cls) if item.init]  # type: ignore[arg-type]
        names = [item.name for item in known]
        proposed = [name for name in names if name not in hints]
        required = [n.name for n in known if n.default is MISSING and n.default_factory is MISSING]
        original = cls.__init__

        @functools.wraps(original)
        def __init__(self: T, *args: Any, **settings: Any) -> None:
            what = _fault(cls.__name__, args[positional:], settings, names, required[len(args) :])
            if what is not None:
                unknown = [name for name in settings if name not in names]
                advice = _advice(cls.__name__, unknown, proposed, hints)
                raise error(what, code=code, where=here(), next=advice)
            original(self, *args, **settings)

        cls.__init__ = __init__  # type: ignore[method-assign,assignment]
        return cls

    return decorate


def refuse_calls(
    refusal: Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any], str], CrossStreamError],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a function raise an error of ours where Python would raise a bare `TypeError`: the arguments do not fit.

    ``refusal``: makes the error of the function, the arguments by place and by name, and what Python says.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **settings: P.kwargs) -> T:
            try:
                signature.bind(*args, **settings)
            except TypeError as fault:
                raise refusal(function, args, settings, str(fault)) from None
            return function(*args, **settings)

        return call

    return decorate


def settings_refusal(
    error: type[CrossStreamError], code: str, owner: str, hints: Mapping[str, str] = _NO_HINTS
) -> Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any], str], CrossStreamError]:
    """For `refuse_calls` of a class method: the words of `keyword_settings`, ``owner`` being what the user called."""

    def refusal(
        function: Callable[..., Any], args: tuple[Any, ...], settings: Mapping[str, Any], fault: str
    ) -> CrossStreamError:
        known = list(inspect.signature(function).parameters.values())[1:]
        names = [one.name for one in known]
        required = [one.name for one in known[len(args) - 1 :] if one.default is one.empty]
        what = _fault(owner, (), settings, names, required) or f"{owner} is not called like that: {fault}"
        unknown = [name for name in settings if name not in names]
        return error(what, code=code, where=here(), next=_advice(owner, unknown, names, hints))

    return refusal


def _fault(
    owner: str, extra: tuple[Any, ...], settings: Mapping[str, Any], names: list[str], required: list[str]
) -> str | None:
    if extra:
        return f"{owner} takes keyword arguments only"
    unknown = [name for name in settings if name not in names]
    if unknown:
        return f"{owner} has no setting {', '.join(map(repr, unknown))}"
    missing = [name for name in required if name not in settings]
    return f"{owner} needs {', '.join(missing)}" if missing else None


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
    """Whether it is a whole number, also one of numpy's; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_partitions(owner: str, partitions: object) -> None:
    """Refuses (CS-101) what is neither None nor a positive int."""
    if partitions is not None and (not is_whole(partitions) or partitions < 1):
        raise TopologyError(
            f"{owner}(partitions={partitions!r}) is not a number of partitions",
            code="CS-101",
            where=here(),
            next="give a positive int, or leave it out",
        )


def put_off(function: Callable[..., Any]) -> str | None:
    """What makes a call of ``function`` run nothing yet: ``async def``, or ``yield``; None: a call runs it.

    >>> put_off(lambda lines: (yield lines)), put_off(len)
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
    """How a function is called: of one that wraps another and takes any arguments, as the other is.

    Raises TypeError or ValueError, as `inspect.signature` does, where Python cannot tell.
    """
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:
        return inspect.signature(function)
    passes_on = any(one.kind is one.VAR_POSITIONAL for one in own.parameters.values())
    return inspect.signature(function) if passes_on else own


def fits_call(function: Callable[..., Any], parameters: tuple[str, ...]) -> bool:
    """Whether ``function`` can be called with that many positional arguments; True if Python cannot tell."""
    try:
        own_signature(function).bind(*parameters)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True
