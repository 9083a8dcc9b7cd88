"""Which serde an operator's output has, and the error where none can be found.

Precedence: option object, else inherited where the type cannot have changed (semantics 3.5). An output
whose value serde is None has values that exist as Python objects only; the engine keeps them in a form of
its own, which never reaches a topic.
"""

from __future__ import annotations

from crossstream import serdes
from crossstream.api.options import Consumed, Materialized
from crossstream.errors import TopologyError
from crossstream.location import here
from crossstream.serdes import Serde
from crossstream.serdes.json_typed import SchemaJson
from crossstream.serdes.serde import alike, told_apart


def source_serdes(operator: str, key: Serde | None, value: Serde | None) -> tuple[Serde, Serde]:
    """Both serdes of a source. Raises CS-140 where one is missing: there is no default to fall back to."""
    if key is not None and value is not None:
        return key, value
    missing = " and ".join(name for name, serde in (("key", key), ("value", value)) if serde is None)
    raise TopologyError(
        f"no {missing} serde for {operator}",
        code="CS-140",
        where=here(operator),
        next="pass Consumed(key=serdes.string(), value=serdes.json()); serdes.bytes() leaves bytes alone",
    )


def table_serdes(topic: str, consumed: Consumed, stored: Materialized | None) -> tuple[Serde, Serde]:
    """Both serdes of a table read from ``topic``; those `Consumed` leaves out may come from `Materialized`.

    Raises CS-140 where one is missing, CS-140 where the two disagree: rows are kept as they came.
    """
    asked = stored or Materialized()
    for name, read, kept in (("key", consumed.key, asked.key), ("value", consumed.value, asked.value)):
        if read is not None and kept is not None and not alike(read, kept):
            mine, theirs = told_apart(read, kept)
            raise TopologyError(
                f"table {topic} is read with {name} serde {mine}, but stored with {theirs}",
                code="CS-140",
                where=here(topic),
                next=f"leave {name}= out of Materialized",
            )
    return source_serdes(topic, consumed.key or asked.key, consumed.value or asked.value)


def needed_key(operator: str, inherited: Serde | None, given: Serde | None, option: str) -> Serde:
    """The key serde of an operation by key. Raises CS-140 if there is none, CS-140 if two disagree."""
    if inherited is not None and given is not None and not alike(inherited, given):
        told, found = told_apart(given, inherited)
        raise TopologyError(
            f"{operator} is told that keys are {told}, but its input has {found} keys",
            code="CS-140",
            where=here(operator),
            next="leave key= out; a stream can change it before: repartition(Repartitioned(key=…))",
        )
    key = given or inherited
    if key is None:
        raise TopologyError(
            f"{operator} works by key, and the key serde was lost where the key changed",
            code="CS-140",
            where=here(operator),
            next=f"pass {option}, such as {option.replace('…', 'serdes.string()')}",
        )
    return key


def agreed(operator: str, what: str, known: Serde | None, given: Serde | None, setting: str) -> Serde | None:
    """The serde of an input, known or given by an option. Raises CS-140 if the two disagree."""
    if known is not None and given is not None and not alike(known, given):
        told, found = told_apart(given, known)
        raise TopologyError(
            f"{operator} is told that {what} are {told}, but they are {found}",
            code="CS-140",
            where=here(operator),
            next=f"leave {setting}= out",
        )
    return known or given


def stored_value(
    given: Serde | None, declared: Serde | None, *, queryable: bool, like: Serde | None
) -> Serde | None:
    """The value serde of a table that a function makes: JSON, if it has a name and there is JSON above it.

    None: the values stay inside the engine. ``given``: the user's; JSON without a type gets the one of an expression.
    ``declared``: the serde of the type that the function declares. ``like``: that of the (left) input.
    """
    if given == serdes.json():
        return declared if isinstance(declared, SchemaJson) else given
    if given is not None or not (queryable and is_json(like)):
        return given
    return declared or serdes.json()


def sink_serdes(
    operator: str,
    inherited: tuple[Serde | None, Serde | None],
    given: tuple[Serde | None, Serde | None],
    step: str = "pass Produced({})",
) -> tuple[Serde, Serde]:
    """Serdes of a sink. Raises CS-140, which says by which ``step`` to name them, where none is given or known."""
    key, value = (mine or theirs for mine, theirs in zip(given, inherited, strict=True))
    if key is not None and value is not None:
        return key, value
    missing = [name for name, serde in (("key", key), ("value", value)) if serde is None]
    examples = {"key": "key=serdes.string()", "value": "value=serdes.json()"}
    raise TopologyError(
        f"{operator} does not know the {' and '.join(missing)} serde: it may have changed on the way",
        code="CS-140",
        where=here(operator),
        next=step.format(", ".join(examples[name] for name in missing)),
    )


def same(serde: Serde | None, other: Serde | None) -> Serde | None:
    """The serde of two inputs that agree; None if they do not."""
    return serde if serde is not None and other is not None and alike(serde, other) else None


def is_json(serde: Serde | None) -> bool:
    """Whether a serde is of the JSON family: ``json``, ``json[Order]``, …"""
    return serde is not None and serde.name.partition("[")[0] == "json"
