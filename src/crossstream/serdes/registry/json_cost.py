"""What it costs to check a value against a JSON Schema, before it is checked.

Story: each of 30 schemas asks for all of the one before it, twice. The text has 2 kB, the check 2**30 steps. The same
is possible for each level of a value, with a schema inside itself. So the steps are counted first, each pair of a
schema and a depth once: from a value down to one of its leaves, they are at most the sum over the schemas of each value
on the way. Those of the fields beside each other are no sum, for each field has a value of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MOST_STEPS = 10_000
"""From a value to one of its leaves."""

_USUAL_DEPTH = 64
_SAME = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "extends", "disallow")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_BY_NAME = ("dependentSchemas", "dependencies")
_ANY_FIELD = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor")


class Cost:
    """``schema``: decoded; ``others``: the schemas that it refers to, by name."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._schema = schema
        self._documents = [schema, *others.values()]
        self._named: dict[str, list[Any]] = {}
        for name, other in others.items():
            self._named.setdefault(name, []).append(other)
        for document in self._documents:
            self._add_names(document)
        self._known: dict[tuple[int, int], int] = {}
        self._is_usual = self.steps(_USUAL_DEPTH) <= MOST_STEPS

    def is_too_high(self, text: bytes, value: Any) -> bool:
        """Whether this value, with this text, takes too many steps."""
        if self._is_usual and text.count(b"{") + text.count(b"[") <= _USUAL_DEPTH:
            return False
        return self.steps(_depth(value)) > MOST_STEPS

    def steps(self, depth: int) -> int:
        """The most steps from a value of this depth to one of its leaves; some more than `MOST_STEPS`: too many."""
        try:
            return self._steps(self._schema, depth)
        except RecursionError:
            return MOST_STEPS + 1

    def _steps(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), depth)
        if key not in self._known:
            self._known[key] = MOST_STEPS + 1  # in a circle without an end
            made = 1
            for part in self._same(schema):
                made += self._steps(part, depth)
                if made > MOST_STEPS:
                    return made
            if depth:
                groups = [sum(self._steps(part, depth - 1) for part in group) for group in _below(schema)]
                made += max(groups[:-1], default=0) + groups[-1]
            self._known[key] = min(made, MOST_STEPS + 1)
        return self._known[key]

    def _same(self, schema: dict[str, Any]) -> Iterator[Any]:
        """The schemas that the value itself is checked against."""
        for name in _SAME:
            yield from _all(schema.get(name))
        for name in _BY_NAME:
            yield from _values(schema.get(name))
        for name in _REFERENCES:
            if isinstance(schema.get(name), str):
                yield from self._referred(schema[name])

    def _referred(self, reference: str) -> Iterator[Any]:
        """What a reference may mean: in any of the documents, which is too many rather than too few."""
        uri, _, fragment = reference.partition("#")
        roots = self._documents if not uri else self._named.get(uri.rpartition("/")[2], [])
        if fragment and not fragment.startswith("/"):
            yield from self._named.get(fragment, [])
            return
        for root in roots:
            found = root
            for step in unquote(fragment).split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                    found = found[int(step)]
                else:
                    found = found.get(step) if isinstance(found, dict) else None
            yield found

    def _add_names(self, document: Any) -> None:
        inside = [document]
        while inside:
            one = inside.pop()
            if isinstance(one, dict):
                for name in _NAMES:
                    if isinstance(one.get(name), str):
                        last = one[name].rstrip("#").rpartition("/")[2]
                        self._named.setdefault(last.lstrip("#"), []).append(one)
            inside.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())


def _below(schema: dict[str, Any]) -> list[list[Any]]:
    """The schemas of the values inside, by field; the last ones are those of any field or item."""
    named = _values_by_name(schema.get("properties"))
    others = [*_values(schema.get("patternProperties"))]
    for name in (*_ANY_FIELD, *_ITEMS):
        others += _all(schema.get(name))
    return [*([one] for one in named.values()), others]


def _values_by_name(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _values(given: Any) -> list[Any]:
    return [one for one in _values_by_name(given).values() if isinstance(one, dict)]


def _all(given: Any) -> list[Any]:
    parts = given if isinstance(given, list) else [given]
    return [one for one in parts if isinstance(one, dict)]


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list) and one]:
        depth += 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return depth
