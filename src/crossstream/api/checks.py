"""Checks of arguments and of serdes; each raises `TopologyError` at the caller's line and says what to write.

Which serde an operator's output has: the option object comes first, then the input's serde where the type cannot have
changed (semantics 3.5). Values without a serde are Python objects; the engine keeps them in a form of its own, which
never reaches a topic.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar

import polars as pl

from crossstream.api.types import TYPES, Inputs, as_serde, check_refers, checked_predicate, named_field, typed
from crossstream.columns.changes import Headers
from crossstream.columns.functions import ALL, Function, keyed, other_rows, projection_of
from crossstream.durations import Duration, Timestamp, is_duration, to_milliseconds, to_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, caller_location
from crossstream.graph.nodes import Node
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import alike, check_key_serde, known, names_apart
from crossstream.signatures import deferred_kind, fits_call
from crossstream.topics import name_fault

T = TypeVar("T")

NAME_RULE = 'choose a name of ASCII letters, digits, ".", "_" and "-", at most 249 of them'


def check_name(owner: str, setting: str, name: object, *, optional: bool = False) -> None:
    """Refuses (CS-102) a name that Kafka does not allow for an operator, store or topic."""
    fault = None if optional and name is None else name_fault(name)
    if fault is not None:
        raise refuse("CS-102", f"{owner}({setting}={name!r}): {fault}", **caller_location())


def check_topic(operator: str, topic: object) -> None:
    """Refuses (CS-102) a name that Kafka does not allow for a topic."""
    fault = name_fault(topic)
    if fault is not None:
        step = NAME_RULE if isinstance(topic, str) else 'pass one name, such as "orders"'
        raise refuse("CS-102", f"{operator}: {topic!r} is not a topic: {fault}", step, **caller_location())


def settle_durations(option: object, *settings: str, minimum: int | None = 0) -> None:
    """Replaces durations by milliseconds, so that equal options compare equal. None stays.

    Refuses (CS-110) other values, and durations below ``minimum`` ms.
    """
    for setting in settings:
        given = getattr(option, setting)
        if given is not None:
            settled = to_milliseconds(given, setting, minimum=minimum, code="CS-110")
            object.__setattr__(option, setting, settled)


def settle_timestamp(option: object, setting: str) -> None:
    """Replaces a timestamp by its milliseconds. Refuses (CS-110) other values, and times before the epoch."""
    given = getattr(option, setting)
    try:
        settled = to_timestamp(given, setting)
    except ConfigError:
        settled = -1
    if settled < 0:
        what = f"{setting} is not a timestamp of the epoch or later: {given!r}"
        step = "pass an int of milliseconds since the epoch, or a datetime"
        raise refuse("CS-110", what, step, **caller_location())
    object.__setattr__(option, setting, settled)


def settled(setting: Duration | Timestamp) -> int:
    """The milliseconds of a setting after `settle_durations` or `settle_timestamp`."""
    assert isinstance(setting, int)
    return setting


def settle_serdes(option: object, *settings: str, optional: bool = True) -> None:
    """Replaces types by their serdes (`as_serde`), and checks them as `check_serdes` does."""
    for setting in settings:
        object.__setattr__(option, setting, as_serde(getattr(option, setting)))
    given = {setting: getattr(option, setting) for setting in settings}
    check_serdes(type(option).__name__, optional=optional, **given)


def with_known_serdes(option: T) -> T:
    """The option as the engine takes it: a copy that has serdes of a user wrapped (`known`), if there are any."""
    given = {setting: getattr(option, setting, None) for setting in ("key", "value", "other_value")}
    own = {
        setting: known(serde)
        for setting, serde in given.items()
        if not (serde is None or isinstance(serde, EngineSerde))
    }
    return replace(option, **own) if own else option  # type: ignore[type-var]


def check_serdes(
    owner: str,
    /,
    *,
    optional: bool = True,
    ways: Collection[str] = ("serialize", "deserialize"),
    **serdes: object,
) -> None:
    """Refuses (CS-101) anything but a serde with these methods (``ways``); ``optional``: None is allowed.

    Raises `SerdeError` (CS-404) for a serde that cannot serve keys, as ``key``.
    """
    check_key_serde(serdes.get("key"))  # type: ignore[arg-type]
    for setting, serde in serdes.items():
        if serde is None and optional:
            continue
        if not isinstance(serde, type) and all(callable(getattr(serde, way, None)) for way in ways):
            continue
        called = callable(serde) and getattr(serde, "__module__", "").startswith("crossstream.serdes")
        name = getattr(serde, "__name__", "json")
        what = (
            f"{owner}({setting}={serde.__name__}): the class has no serde"
            if isinstance(serde, type)
            else f"{owner}({setting}={serde!r}) is not a serde"
        )
        step = f"call it: {setting}=serdes.{name}()" if called else _serde_advice(setting, serde)
        raise refuse("CS-101", what, step, **caller_location())


def _serde_advice(setting: str, given: object) -> str:
    if isinstance(given, type) and callable(getattr(given, "serialize", None)):
        return f"make one: {setting}={given.__name__}()"
    if isinstance(given, type) and given is not object:
        return f"declare its fields: make it a dataclass; or pass a serde, such as {setting}=serdes.json()"
    return f"pass a serde, such as {setting}=serdes.json(); or a type: {TYPES}"


def check_choice(owner: str, setting: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuses (CS-101) a value that is not one of ``choices``."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        what = f"{owner}({setting}={value!r}) is not one of the choices"
        raise refuse("CS-101", what, f"choose {' or '.join(map(repr, choices))}", **caller_location())


def check_headers(operator: str, headers: Headers | None) -> Headers | None:
    """Whose headers the results of a join have. Refuses (CS-101) anything but None and the names of sides."""
    check_choice(operator, "headers", headers, (None, "left", "right", "both"))
    return headers


def check_signature(
    owner: str, setting: str, function: object, parameters: tuple[str, ...], *, optional: bool = True
) -> None:
    """Refuses (CS-104) a function that cannot be called with ``parameters``, or does not run when it is called.

    Refuses expressions too, except for timestamps; ``optional``: None is allowed.
    """
    if function is None and optional:
        return
    if isinstance(function, pl.Expr) and setting == "timestamp_extractor":
        _check_rows(f"the {setting} of {owner}", function, owner)
        return
    if not callable(function):
        step = (
            f"pass a function of ({', '.join(parameters)})"
            if parameters
            else "pass a function without arguments"
        )
        raise refuse("CS-104", f"{owner}({setting}={function!r}) is not callable", step, **caller_location())
    _check_arity(f"{owner}({setting}=…)", function, parameters)
    _check_runs(f"{owner}({setting}=…)", function)


def check_option(operator: str, setting: str, option: object, kind: type[T]) -> T | None:
    """``option`` as the engine takes it, if it is None or a ``kind``; else CS-101, which says what to write."""
    if option is None:
        return None
    if isinstance(option, kind):
        return with_known_serdes(option)
    name = type(option).__name__
    is_other = {name, kind.__name__} == {"Named", "Materialized"}  # Java takes either in one place
    what = f"{setting} of {operator} must be a {kind.__name__}, not {name}"
    step = (
        f"name the argument: {name.lower()}=…"
        if is_other
        else f"name the types: {operator}(…, key=str, value=dict)"
        if kind.__name__ in ("Consumed", "Produced") and isinstance(option, type)
        else f"write {setting}={_written(option, kind.__name__)}"
    )
    raise refuse("CS-101", what, step, **caller_location(operator))


def _written(given: object, kind: str) -> str:
    """How to write an option of a ``kind``, with the value that was given if it fits."""
    if kind in ("Consumed", "Produced"):
        return f"{kind}(key=serdes.string(), value=serdes.json())"
    if kind == "JoinWindows":
        return f"{kind}.of({repr(given) if is_duration(given) else repr('10 seconds')})"
    keyword = {"Named": "", "Materialized": "store="}.get(kind, "name=")
    name = repr(given) if name_fault(given) is None else '"…"'
    return f"{kind}({keyword}{name})"


def function_of(
    operator: str,
    role: str,
    given: Any,
    inputs: Inputs,
    *,
    values: tuple[str, ...] | None = None,
    with_key: bool = False,
    expression: bool = True,
    several: bool = False,
    by_name: bool = False,
) -> Function:
    """The function that the user passed, checked, with the type of its result.

    ``inputs``: the nodes that it reads, by argument; ``values``: the arguments of a callable, if they differ.
    ``by_name``: text names a field. ``expression``: an expression is allowed. ``several``: it returns an iterable, so
    it may be a generator function. A callable with one more parameter gets the key first; ``with_key`` decides where
    the signature is unknown (``print``).

    Raises CS-104 for anything but a function of these parameters or an expression over these inputs and the key,
    CS-111 for an expression that reads other records, CS-113 and CS-114 as `typed`.
    """
    if by_name and isinstance(given, str):
        return named_field(given, operator, role, inputs)
    values = tuple(inputs) if values is None else values
    what = f"the {role} of {operator}"
    called = given.function if isinstance(given, keyed) else given
    if not (callable(called) or (expression and isinstance(given, pl.Expr))):
        shown = "a Polars expression" if isinstance(given, pl.Expr) else repr(given)
        raise refuse(
            "CS-104",
            f"{what} is missing" if given is REQUIRED else f"{what} is {shown}, not a function",
            f"pass one, such as lambda {', '.join(values)}: …",
            **caller_location(operator),
        )
    function = replace(Function.of(given, arguments=len(values), with_key=with_key), role=role)
    if function.call is not None:
        _check_arity(what, function.call, values, function.with_key, operator)
        _check_runs(what, function.call, operator, several=several)
    elif function.expression is not None:
        _check_rows(what, function.expression, operator)
        if "left" in inputs:
            _check_columns(what, function, inputs, operator)
    return typed(function, operator, role, inputs)


def reference_of(operator: str, role: str, given: Any, left: Node, right: Node) -> Function:
    """What takes a key of ``right`` from the values of ``left``: as `function_of`, and CS-134 as `check_refers`."""
    function = function_of(operator, role, given, {"value": left}, by_name=True)
    check_refers(operator, role, function, left, right)
    return function


def predicate_of(operator: str, given: Any, node: Node) -> Function:
    """As `function_of`. Raises CS-115 for an expression that is not Boolean."""
    return checked_predicate(function_of(operator, "predicate", given, {"value": node}), operator)


def _check_rows(what: str, expression: pl.Expr, operator: str) -> None:
    found = other_rows(expression)
    if found is not None:
        what = f"{what} reads other records than its own ({found}): the result would depend on the batches"
        raise refuse("CS-111", what, **caller_location(operator))


def _check_columns(what: str, function: Function, sides: Collection[str], operator: str) -> None:
    unknown = sorted(projection_of(function).keys() - {*sides, "key", ALL})
    if not unknown:
        return
    named = ", ".join(map(repr, unknown))
    raise refuse(
        "CS-104",
        f"{what} reads {'columns' if unknown[1:] else 'the column'} {named}; it has {', '.join(sides)} and key",
        f'a field is a field of a side: pl.col("{next(iter(sides))}").struct.field("{unknown[0]}")',
        **caller_location(operator),
    )


def _check_arity(
    what: str,
    function: Any,
    parameters: tuple[str, ...],
    with_key: bool | None = None,
    operator: str | None = None,
) -> None:
    passed = ("key", *parameters) if with_key else parameters
    if callable(function) and fits_call(function, passed):
        return
    wanted = ", ".join(parameters)
    also = "" if with_key is None else f", or lambda key, {wanted}: …"
    raise refuse(
        "CS-104",
        f"{what} is called with ({wanted}){' or with the key before' if also else ''}; "
        f"{_called(function)} does not take that",
        f"write it as {f'lambda {wanted}'.rstrip()}: …{also}",
        **caller_location(operator),
    )


def _check_runs(what: str, function: Any, operator: str | None = None, *, several: bool = False) -> None:
    way = deferred_kind(function)
    if way is None or (way == "yield" and several):
        return
    gives, step = "a coroutine, and nothing awaits it", "write it with def; asyncio.run(…) runs a coroutine"
    if way == "yield":
        gives = "a generator, and nothing iterates it"
        step = "return one value; flat_map and flat_map_values take several"
    raise refuse(
        "CS-104",
        f"{what} has {way}: a call of {_called(function)} returns {gives}",
        step,
        **caller_location(operator),
    )


def _called(function: object) -> str:
    try:
        signature = str(inspect.signature(function))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = ""
    return f"{getattr(function, '__name__', repr(function))}{signature}"


class _Required:
    """Stands for a missing argument, so that the error can say what to pass."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Any = _Required()


def known_serdes(
    operator: str, key: EngineSerde | None, value: EngineSerde | None, step: str
) -> tuple[EngineSerde, EngineSerde]:
    """Both serdes of a source or a sink. Raises CS-140 where one is missing; ``step`` says how to give it."""
    if key is not None and value is not None:
        return key, value
    examples = {"key": "key=str", "value": "value=dict"}
    missing = [name for name, serde in (("key", key), ("value", value)) if serde is None]
    raise refuse(
        "CS-140",
        f"no {' and '.join(missing)} serde for {operator}",
        step.format(", ".join(examples[name] for name in missing)),
        **caller_location(operator),
    )


def agreed(
    operator: str, what: str, inherited: EngineSerde | None, given: EngineSerde | None, setting: str
) -> EngineSerde | None:
    """The serde that is inherited or that an option gives. Raises CS-140 if the two differ."""
    inherited = None if inherited is None else inherited.public
    if inherited is not None and given is not None and not alike(inherited, given):
        option_serde, found = names_apart(given, inherited)
        raise refuse(
            "CS-140",
            f"{operator}: the serde given says that {what} are {option_serde}, but they are {found}",
            f"leave {setting}= out",
            **caller_location(operator),
        )
    return inherited or given


def needed_key(
    operator: str, inherited: EngineSerde | None, given: EngineSerde | None, option: str
) -> EngineSerde:
    """The key serde of an operation by key. Raises CS-140 if there is none or two differ."""
    key = agreed(operator, "the keys of its input", inherited, given, "key")
    if key is None:
        what = f"{operator} works by key, and the key serde was lost where the key changed"
        step = (
            f"pass {option}, such as {option.replace('…', 'str' if option == 'key=…' else 'serdes.string()')}"
        )
        raise refuse("CS-140", what, step, **caller_location(operator))
    return given or key


def check_same_keys(operator: str, left: Node, key: EngineSerde | None, right: Node, step: str) -> None:
    """Refuses (CS-134) to join inputs whose key serdes differ. ``key``: of the left input; ``step``: another way."""
    if key is None or right.key is None or alike(key, right.key):
        return
    mine, theirs = names_apart(key, right.key)
    what = f"cannot join by key: {left.name} has {mine} keys, {right.name} has {theirs} keys"
    raise refuse("CS-134", what, f"give both the same key serde; {step}", **caller_location(operator))
