"""What is different in the new code, in words: an operator a line, its functions, settings, serdes and place."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from crossstream.durations import in_words
from crossstream.evolution.decision import Match
from crossstream.evolution.expressions import readable
from crossstream.evolution.results import place_text
from crossstream.graph.noting import base_of
from crossstream.storage.noted import NotedFunction, NotedNode, NotedTopology

_WORDS = MappingProxyType(
    {
        "agg": "aggregate",
        "frame_sink": "for_each_batch",
        "group_table": "grouping of a table",
        "left_join_many": "left join of many",
        "join_many": "join of many",
        "to_table": "table of a stream",
    }
)
"""What operators are called in a sentence, where that is not their name."""
_HIDDEN = frozenset({"kind", "names", "topics", "operator", "group_key", "group_values", "columns"})
"""Settings that are said in another way, or follow from what is above."""
_DURATIONS = frozenset(
    {"history_retention", "retention", "ttl", "before", "after", "grace", "within", "duration"}
)
_NAMES = MappingProxyType(
    {"history_retention": "old versions of its rows are kept for", "ttl": "its rows expire after"}
)


def changes(
    old: NotedTopology,
    new: Mapping[str, NotedNode],
    matches: Mapping[str, Match],
    marked: frozenset[str] = frozenset(),
    asked: Collection[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """A line for each operator that is new, gone, or different of itself; not for those that follow from it.

    ``marked``: operators that count as changed, for the user says so. ``asked``: functions that cannot be compared, by
    operator and role.
    """
    before = {node.name: node for node in old.nodes}
    serdes = {name: (before[match.old], new[name]) for name, match in matches.items()}
    met = {match.old for match in matches.values()}
    lines: list[str] = []
    for node in new.values():
        match = matches.get(node.name)
        if match is None:
            lines += [f"new: {_called(node)}"] if _says_something(node) else []
            continue
        pairs = [serdes[name] for name in node.parents if name in serdes]
        inherits = bool(pairs) and any((was.key, was.value) != (now.key, now.value) for was, now in pairs)
        found = _differences(before[match.old], node, matches, asked, inherits=inherits)
        lines += [f"{node.name}: {text}" for text in found]
        if node.name in marked:
            lines.append(f"{node.name}: is computed again, as you asked")
    lines += [
        f"gone: {_called(node)}" for node in old.nodes if node.name not in met and _says_something(node)
    ]
    return tuple(lines)


def _says_something(node: NotedNode) -> bool:
    """Whether an operator is more than a step between others."""
    return bool(node.functions or node.settings or node.store or node.topics or len(node.parents) != 1)


def _called(node: NotedNode) -> str:
    place = place_text(node.settings)
    if place:
        return f"a sink, {place}"
    if node.words:
        return f"{node.name}, {_a(node.kind)}: {_listed(_results(node))}"
    functions = [readable(one.text) for one in node.functions.values() if one.is_expression]
    said = f": {functions[0]}" if len(functions) == 1 else ""
    return f"{node.name}, {_a(node.kind)}{said}"


def _results(node: NotedNode) -> list[str]:
    return [f"{name} = {readable(text)}" for name, text in node.words.items()]


def _a(kind: str) -> str:
    kind = _WORDS.get(kind, kind).replace("_", " " if kind in _WORDS else "_")
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def _differences(
    old: NotedNode,
    new: NotedNode,
    matches: Mapping[str, Match],
    asked: Collection[tuple[str, str]],
    *,
    inherits: bool,
) -> Iterator[str]:
    """What an operator itself has that it had not. ``inherits``: its serdes follow from those above, which differ."""
    if old.kind != new.kind:
        yield f"is {_a(new.kind)}\nwas {_a(old.kind)}"
    if old.topics != new.topics:
        yield f"reads {_listed(new.topics)}\nread {_listed(old.topics)}"
    parents = tuple(matches[name].old if name in matches else f"{name} (new)" for name in new.parents)
    if parents != old.parents:
        yield f"is made of {_listed(new.parents)}\nwas made of {_listed(old.parents)}"
    yield from _words(old, new)
    for role in sorted({*old.functions, *new.functions}):
        is_hidden = base_of(role) in _HIDDEN and (old.words or new.words)
        if not is_hidden and (new.name, role) not in asked:
            yield from _function(_role(role), old.functions.get(role), new.functions.get(role))
    for name in sorted({*old.settings, *new.settings} - _HIDDEN):
        was, now = old.settings.get(name), new.settings.get(name)
        if was != now:
            yield f"{_NAMES.get(name, name)}: now {_short(now, name)}\nbefore {_short(was, name)}"
    if old.store != new.store:
        yield (f"its store is called {new.store}" if new.store else "its store has no name any more") + (
            f", was {old.store}" if old.store else ""
        )
    if not inherits and "windows" not in new.settings:
        yield from _types("keys", old.key, new.key)
        yield from _types("values", old.value, new.value)


def _words(old: NotedNode, new: NotedNode) -> Iterator[str]:
    """Results of an aggregation by name."""
    for name in dict.fromkeys((*new.words, *old.words)):
        was, now = old.words.get(name), new.words.get(name)
        if was is None or now is None:
            yield f"{name} = {readable(now or was or '')} is {'gone' if now is None else 'new'}"
        elif was != now:
            yield f"now {name} = {readable(now)}\nbefore {readable(was)}"


def _role(role: str) -> str:
    """What a function is called: that of a part by its name.

    >>> _role("foreign_keys.shop"), _role("adders[0]"), _role("joiner")
    ('foreign key shop', 'adder', 'joiner')
    """
    name, dot, part = role.partition(".")
    is_part = bool(dot) or "[" in name
    name = name.partition("[")[0].replace("_", " ")
    return f"{name.removesuffix('s') if is_part else name} {part}".strip()


def _function(role: str, old: NotedFunction | None, new: NotedFunction | None) -> Iterator[str]:
    if old is None or new is None:
        there = new or old
        assert there is not None
        yield f"{role} is {'new' if old is None else 'gone'}: {_of(there)}"
    elif old.is_expression and new.is_expression:
        if old.code != new.code:
            yield f"{role} now {readable(new.text)}\nbefore {readable(old.text)}"
    elif (old.code or old.text) != (new.code or new.text):
        if old.text == new.text:
            yield f"{role}: the code of {new.text} looks different"
        else:
            yield f"{role} now {_of(new)}\nbefore {_of(old)}"


def _of(function: NotedFunction) -> str:
    return readable(function.text) if function.is_expression else function.text


def _types(part: str, old: str, new: str) -> Iterator[str]:
    if old == new:
        return
    was, now = _said(old), _said(new)
    before, after = _fields(was), _fields(now)
    if before and after and before != after:
        yield from (
            f"its {part} have a new field {name}: {_shown(after[name])}"
            for name in after
            if name not in before
        )
        yield from (f"its {part} have no field {name} any more" for name in before if name not in after)
        yield from (
            f"field {name} of its {part} is {_shown(after[name])}, was {_shown(before[name])}"
            for name in after
            if name in before and before[name] != after[name]
        )
    elif was.get("name") != now.get("name"):
        yield f"its {part} are {now.get('name', 'of no serde')}, were {was.get('name', 'of no serde')}"
    else:
        yield f"its {part} have another type of the same name: {now.get('name')}"


def _said(text: str) -> dict[str, Any]:
    said = json.loads(text) if text else {}
    return said if isinstance(said, dict) else {}


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    columns = said.get("columns")
    struct = columns.get("struct") if isinstance(columns, dict) else None
    return struct if isinstance(struct, dict) else {}


def _shown(dtype: Any) -> str:
    return dtype if isinstance(dtype, str) else json.dumps(dtype)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


_WINDOWS = re.compile(r"\(kind=(\w+), size=(\d+)(?:, advance=(\d+))?(?:, grace=(\d+))?.*\)")


def _short(text: str | None, name: str = "") -> str:
    """A setting, with its durations as people write them.

    >>> _short("3600000", "history_retention"), _short("(kind=time, size=60000, advance=60000, grace=0)", "windows")
    ('1 hour', 'of 1 minute')
    """
    if text is None:
        return "not set"
    if name in _DURATIONS and text.isdecimal():
        return in_words(int(text))
    if name == "windows" and (found := _WINDOWS.fullmatch(text)) is not None:
        return _windows(found[1], int(found[2]), int(found[3] or 0), int(found[4] or 0))
    return text if len(text) <= 90 else f"{text[:87]}…"


def _windows(kind: str, size: int, advance: int, grace: int) -> str:
    each = {
        "time": f"of {in_words(size)}",
        "sliding": f"sliding, of {in_words(size)}",
        "session": f"sessions with a gap of {in_words(size)}",
    }.get(kind, kind)
    every = f", one every {in_words(advance)}" if kind == "time" and advance not in (0, size) else ""
    late = f", records up to {in_words(grace)} late" if grace else ""
    return f"{each}{every}{late}"
