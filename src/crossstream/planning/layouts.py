"""The layouts of stores: which columns a store of each kind has, and what its kind says to who reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from crossstream.columns.changes import reference
from crossstream.storage.sorted_run import Layout

KEY_VALUE = Layout("key-value", (("value", "bytes"), ("ts", "int64")))
VERSIONED = Layout("versioned", (("value", "bytes"),), sort="int64")
SUBSCRIPTIONS_HEADERS = Layout(
    "subscriptions+headers",
    (("value", "bytes"), ("ts", "int64"), ("headers", "bytes")),
    sort="uint64",
    second_key=True,
)
KEY_VALUE_HEADERS = Layout("key-value+headers", (("value", "bytes"), ("ts", "int64"), ("headers", "bytes")))
VERSIONED_HEADERS = Layout("versioned+headers", (("value", "bytes"), ("headers", "bytes")), sort="int64")
"""Rows with their headers, where a join gives them to its results."""
ORDERED_ROWS = Layout("ordered-rows", (("value", "bytes"), ("ts", "int64"), ("seen", "int64")))
"""Rows of change events: ``ts`` is the place in the database's log, ``seen`` the time of the last event."""
SHOWN_KEYS = Layout("shown-keys", (("ts", "int64"),))
"""Which rows there are, with the times of their last events."""
REFERENCES = Layout("references", (("reference", "bytes"), ("ts", "int64")))
REFERRERS = Layout("referrers", (("count", "int64"),))
INDEX = Layout("index", (), sort="uint64", second_key=True)
INTERESTED = Layout("interested", (), sort="uint64", second_key=True)
SUBSCRIPTIONS = Layout("subscriptions", (("value", "bytes"), ("ts", "int64")), sort="uint64", second_key=True)
WINDOWED = Layout("windowed", (("value", "bytes"), ("ts", "int64")), sort="int64", expires=True)
"""Aggregates by key and start of the window."""
GROUP_ROWS = Layout("group-rows", (("value", "bytes"), ("arrival", "int64")), sort="uint64", second_key=True)
"""The rows of the groups of a table: by the key of the group, then by their own."""
REFUSED_ROWS = Layout("refused-rows", (), sort="uint64", second_key=True)
"""Rows of a table that an adder refused, by the key of their group, then by their own."""
SESSIONS = Layout(
    "windowed-sessions", (("value", "bytes"), ("ts", "int64"), ("start", "int64")), sort="int64", expires=True
)
"""Aggregates by key and end of the session."""
WINDOW = Layout(
    "window",
    (("value", "bytes"), ("headers", "bytes"), ("alone", "uint8")),
    sort="int64",
    numbered=True,
    expires=True,
)
WAITING = Layout("waiting", (("side", "uint8"),), sort="int64", numbered=True, expires=True)
BUFFER = Layout(
    "buffer", (("value", "bytes"), ("headers", "bytes")), sort="int64", numbered=True, expires=True
)

DEDUPLICATED = Layout("deduplicated", (), sort="int64", expires=True)
"""When a record of each identity came out."""
SUPPRESSED = Layout(
    "suppressed",
    (("value", "bytes"), ("old", "bytes"), ("ts", "int64"), ("size", "int64"), ("headers", "bytes")),
    sort="int64",
    second_key=True,
    expires=True,
)
"""Changes held back: by the key that decides the partition, when they came into the buffer, and their own key."""


_BY_KIND = MappingProxyType(
    {
        layout.kind: layout
        for layout in (
            KEY_VALUE,
            VERSIONED,
            SUBSCRIPTIONS_HEADERS,
            KEY_VALUE_HEADERS,
            VERSIONED_HEADERS,
            ORDERED_ROWS,
            SHOWN_KEYS,
            REFERENCES,
            REFERRERS,
            INDEX,
            INTERESTED,
            SUBSCRIPTIONS,
            WINDOWED,
            GROUP_ROWS,
            REFUSED_ROWS,
            SESSIONS,
            WINDOW,
            WAITING,
            BUFFER,
            DEDUPLICATED,
            SUPPRESSED,
        )
    }
)
"""Every layout that has a name of its own."""


def many_references(names: Sequence[str]) -> Layout:
    """The foreign keys of a row into several tables."""
    return Layout(f"references({','.join(names)})", tuple((reference(name), "bytes") for name in names))


def many_rows(names: Sequence[str]) -> Layout:
    """Rows, with their foreign keys into several tables."""
    references = tuple((reference(name), "bytes") for name in names)
    return Layout(f"rows({','.join(names)})", (("value", "bytes"), ("ts", "int64"), *references))


_AGGREGATES = MappingProxyType(
    {"aggregates": KEY_VALUE, "windowed-aggregates": WINDOWED, "windowed-session-aggregates": SESSIONS}
)
"""Stores with columns of state beside the visible values, and what they are without."""


def aggregates(state: Sequence[tuple[str, str]], plain: Layout) -> Layout:
    """Aggregates with columns of state beside the visible value. ``plain``: the layout without them."""
    name = next(name for name, layout in _AGGREGATES.items() if layout == plain)
    kind = ",".join(f"{column}:{form}" for column, form in state)
    return Layout(f"{name}({kind})", (*plain.values, *state), sort=plain.sort, expires=plain.expires)


def read_as(kind: str) -> str:
    """The kind of store that a reader sees, who sees neither the state of aggregates nor headers."""
    kind = kind.partition("+")[0]
    plain = _AGGREGATES.get(kind.partition("(")[0])
    return kind if plain is None else plain.kind


def layout_of(kind: str) -> Layout | None:
    """The layout of a kind of store; None for an unknown kind."""
    found = re.fullmatch(r"([\w-]*aggregates)\(([\w.:,]+)\)", kind)
    if found is not None and found[1] in _AGGREGATES:
        state = [(name, form) for name, _, form in (one.partition(":") for one in found[2].split(","))]
        return aggregates(state, _AGGREGATES[found[1]])
    found = re.fullmatch(r"(references|rows)\(([\w,]+)\)", kind)
    if found is not None:
        names = found[2].split(",")
        return many_references(names) if found[1] == "references" else many_rows(names)
    return _BY_KIND.get(kind)
