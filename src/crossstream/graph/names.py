"""Names of operators, topics, stores and flows. An operator has the user's name, or its path in the graph.

So a name outlives changes elsewhere in the code, and with it the state that is kept under it (decision 0004).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossstream.topics import is_internal

if TYPE_CHECKING:
    from crossstream.typing import KeyPartitioner


def unique(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, … that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def matches(pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Whether a source with this pattern reads the topic; internal topics never match."""
    return pattern is not None and not is_internal(topic) and pattern.fullmatch(topic) is not None


def inner(name: str, part: str) -> str:
    """The name of a flow inside an operator, or of what is kept under ``name``.

    The blank keeps it apart from the flows that operators give: no topic and no operator has one in its name.
    """
    return f"{name} {part}"


def name_of(partitioner: KeyPartitioner) -> str:
    return f"{getattr(partitioner, '__qualname__', type(partitioner).__qualname__)} {id(partitioner):x}"


_KAFKA_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._()+,*^$|?{}\[\]-]")
_LONGEST = 200


def name_fault(name: object) -> str | None:
    """Why Kafka refuses ``name`` for a topic, an operator or a store; None: it does not.

    Source: semantics 5.1 (``Named.validate``, ``Topic.validate``).

    >>> name_fault("orders"), name_fault("my orders")
    (None, 'it may hold only ASCII letters, digits, ".", "_" and "-"')
    """
    if not isinstance(name, str):
        return f"it must be a str, not {type(name).__name__}"
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return 'it may not be "." or ".."'
    if len(name) > 249:
        return f"it has {len(name)} characters; 249 are allowed"
    return None if _KAFKA_NAME.fullmatch(name) else 'it may hold only ASCII letters, digits, ".", "_" and "-"'


@dataclass(slots=True)
class Paths:
    """Gives out path names, counting siblings of a kind under one parent; None is the root."""

    _siblings: Counter[tuple[str | None, str]] = field(default_factory=Counter)

    def name(self, parent: str | None, kind: str) -> str:
        """The name of the next child of a kind. It stays the next until `count` counts it.

        >>> paths = Paths()
        >>> paths.count("orders", "filter")
        >>> paths.name("orders", "filter"), paths.name("bills", "filter")
        ('orders.filter-2', 'bills.filter')
        """
        before = self._siblings[parent, kind]
        path = kind if parent is None else f"{parent}.{kind}"
        return shorten(path if before == 0 else f"{path}-{before + 1}")

    def count(self, parent: str | None, kind: str) -> None:
        """One more child of a kind, whatever its name."""
        self._siblings[parent, kind] += 1

    def copy(self) -> Paths:
        """A copy of the counts."""
        return Paths(self._siblings.copy())


def source_kind(topics: tuple[str, ...], pattern: re.Pattern[str] | None) -> str:
    """The path name of a source: its topics joined by ``+``, or its pattern.

    >>> source_kind(("orders", "bills"), None), source_kind((), re.compile("orders-.*"))
    ('orders+bills', 'pattern(orders-.*)')
    """
    if pattern is None:
        return "+".join(topics)
    return f"pattern({safe(pattern.pattern)})"


def safe(text: str) -> str:
    """``text`` fit for a path name; a short hash keeps texts different that would become equal."""
    clean = _UNSAFE.sub("_", text)
    return clean if clean == text else f"{clean}~{_digest(text)}"


def shorten(name: str) -> str:
    """``name``, or its beginning and a hash if it is too long for a folder of its own."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 13]}~{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()
