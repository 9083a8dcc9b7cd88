"""Names of operators: the user's, else the path of the node in the graph.

A path names a node by where it stands: the source is called after its topic, every other node
``<parent>.<kind>``, a join ``<left>.join(<right>)``. Only a sibling of the same kind under the same
parent adds ``-2``, ``-3``, …; nothing counts globally, so code added elsewhere renames nothing and a
checkpoint outlives the code that wrote it. As in Kafka a named sibling counts too: naming one operator
does not rename the next. Decision 0004.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field

_KAFKA_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._()+,*^$|?{}\[\]-]")
_LONGEST = 200


def name_fault(name: object) -> str | None:
    """What Kafka's rule for names of topics, operators and stores has against ``name``; None: nothing.

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
        """The name of the next child of a kind. It stays the next until `count` is told that it is there.

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
        """The same, to go back to."""
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
    """``text`` fit for a path name; a short hash tells apart what the replacing of characters made equal."""
    clean = _UNSAFE.sub("_", text)
    return clean if clean == text else f"{clean}~{_digest(text)}"


def shorten(name: str) -> str:
    """``name``, or its beginning and a hash if it is too long for a folder of its own."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 13]}~{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()
