"""What a user may pass as a function: a Python callable or a Polars expression, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from crossstream.serdes import Serde
from crossstream.signatures import own_signature


@dataclass(frozen=True, slots=True)
class keyed:
    """Marks a callable that also wants the key: ``keyed(lambda key, value: …)``.

    In a joiner ``keyed(lambda key, left, right: …)``. Source: Kafka's ``…WithKey`` variants.

    >>> keyed(lambda key, value: f"{key}={value}").function("a", 1)
    'a=1'
    """

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function in normal form: exactly one of ``call`` and ``expression`` is set.

    ``with_key``: the callable takes the key first. An expression reads the key as column ``key``. ``returns``: the
    serde of the type that it gives, where that is declared. ``role``: what the operator calls it.
    """

    call: Callable[..., Any] | None = None
    expression: pl.Expr | None = None
    with_key: bool = False
    returns: Serde | None = None
    role: str = "function"

    @classmethod
    def of(
        cls, function: Callable[..., Any] | pl.Expr | keyed, *, arguments: int = 1, with_key: bool = False
    ) -> Function:
        """Normal form of what the user passed; `TypeError` if it is neither callable nor expression.

        ``arguments``: how many values it takes besides the key (a joiner: 2). A callable that requires
        one more than that takes the key first, `keyed` or not; where its signature cannot be read,
        ``with_key`` decides.
        """
        if isinstance(function, pl.Expr):
            return cls(expression=function, with_key=True)
        if isinstance(function, keyed):
            return cls(call=function.function, with_key=True)
        if callable(function):
            return cls(call=function, with_key=_takes_key(function, arguments, with_key))
        raise TypeError(f"expected a callable or a Polars expression, got {type(function).__name__}")

    @property
    def field(self) -> str | None:
        """The field of the value that an expression is, and nothing else: ``pl.col("customer_id")``."""
        if self.expression is None or not self.expression.meta.is_column():
            return None
        name = self.expression.meta.output_name()
        return None if name in ("key", "value") else name


def _takes_key(function: Callable[..., Any], arguments: int, otherwise: bool) -> bool:
    required = required_arguments(function)
    if required in (arguments, arguments + 1):
        return required == arguments + 1
    return otherwise


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
