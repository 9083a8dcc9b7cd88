"""Which serde an operator's output has, and the errors where none is known or two differ.

The option object comes first, then the input's serde where the type cannot have changed (semantics 3.5). Values
without a serde are Python objects; the engine keeps them in a form of its own, which never reaches a topic.
"""

from __future__ import annotations

from crossstream import serdes
from crossstream.api.options import Consumed, Materialized
from crossstream.errors import TopologyError, caller_location
from crossstream.graph.nodes import Node
from crossstream.serdes import Serde
from crossstream.serdes.json_plain import SchemaJson
from crossstream.serdes.serde import alike, names_apart


def source_serdes(operator: str, key: Serde | None, value: Serde | None) -> tuple[Serde, Serde]:
    """Both serdes of a source. Raises CS-140 where one is missing: there is no default."""
    if key is not None and value is not None:
        return key, value
    missing = " and ".join(name for name, serde in (("key", key), ("value", value)) if serde is None)
    raise TopologyError(
        f"no {missing} serde for {operator}",
        code="CS-140",
        where=caller_location(operator),
        next="pass Consumed(key=serdes.string(), value=serdes.json()); serdes.bytes() leaves bytes alone",
    )


def table_serdes(topic: str, consumed: Consumed, stored: Materialized | None) -> tuple[Serde, Serde]:
    """Both serdes of a table read from ``topic``; those `Consumed` leaves out come from `Materialized`.

    Raises CS-140 where one is missing or the two differ: rows are stored as they are read.
    """
    asked = stored or Materialized()
    for name, read, kept in (("key", consumed.key, asked.key), ("value", consumed.value, asked.value)):
        if read is not None and kept is not None and not alike(read, kept):
            mine, theirs = names_apart(read, kept)
            raise TopologyError(
                f"table {topic} is read with {name} serde {mine}, but stored with {theirs}",
                code="CS-140",
                where=caller_location(topic),
                next=f"leave {name}= out of Materialized",
            )
    return source_serdes(topic, consumed.key or asked.key, consumed.value or asked.value)


def needed_key(operator: str, inherited: Serde | None, given: Serde | None, option: str) -> Serde:
    """The key serde of an operation by key. Raises CS-140 if there is none or two differ."""
    if inherited is not None and given is not None and not alike(inherited, given):
        option_serde, found = names_apart(given, inherited)
        raise TopologyError(
            f"{operator}: the key serde given is {option_serde}, but its input has {found} keys",
            code="CS-140",
            where=caller_location(operator),
            next="leave key= out; a stream can change it before: repartition(Repartitioned(key=…))",
        )
    key = given or inherited
    if key is None:
        raise TopologyError(
            f"{operator} works by key, and the key serde was lost where the key changed",
            code="CS-140",
            where=caller_location(operator),
            next=f"pass {option}, such as {option.replace('…', 'serdes.string()')}",
        )
    return key


def check_same_keys(operator: str, left: Node, key: Serde | None, right: Node, step: str) -> None:
    """Refuses (CS-134) to join inputs whose key serdes differ. ``key``: of the left input; ``step``: another way."""
    if key is None or right.key is None or alike(key, right.key):
        return
    mine, theirs = names_apart(key, right.key)
    raise TopologyError(
        f"cannot join by key: {left.name} has {mine} keys, {right.name} has {theirs} keys",
        code="CS-134",
        where=caller_location(operator),
        next=f"give both the same key serde; {step}",
    )


def agreed(operator: str, what: str, known: Serde | None, given: Serde | None, setting: str) -> Serde | None:
    """The serde of an input, known or given by an option. Raises CS-140 if the two differ."""
    if known is not None and given is not None and not alike(known, given):
        option_serde, found = names_apart(given, known)
        raise TopologyError(
            f"{operator}: the serde given says that {what} are {option_serde}, but they are {found}",
            code="CS-140",
            where=caller_location(operator),
            next=f"leave {setting}= out",
        )
    return known or given


def stored_value(
    given: Serde | None, declared: Serde | None, *, queryable: bool, like: Serde | None
) -> Serde | None:
    """The value serde of a table that a function makes: JSON if the table has a name and its input is JSON.

    None: the values stay inside the engine. ``given``: of the option; JSON without a type takes the type of an
    expression. ``declared``: of the type that the function declares. ``like``: of the (left) input.
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
    """Serdes of a sink. Raises CS-140 where one is neither given nor known; ``step``: how to name it."""
    key, value = (mine or theirs for mine, theirs in zip(given, inherited, strict=True))
    if key is not None and value is not None:
        return key, value
    missing = [name for name, serde in (("key", key), ("value", value)) if serde is None]
    examples = {"key": "key=serdes.string()", "value": "value=serdes.json()"}
    raise TopologyError(
        f"{operator} does not know the {' and '.join(missing)} serde: the type may have changed",
        code="CS-140",
        where=caller_location(operator),
        next=step.format(", ".join(examples[name] for name in missing)),
    )


def same(serde: Serde | None, other: Serde | None) -> Serde | None:
    """The serde that two inputs share; None if they differ."""
    return serde if serde is not None and other is not None and alike(serde, other) else None


def is_json(serde: Serde | None) -> bool:
    """Whether a serde is of the JSON family: ``json``, ``json[Order]``, …"""
    return serde is not None and serde.name.partition("[")[0] == "json"
