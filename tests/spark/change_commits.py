"""Commits of a table, the rows that Spark gives for them, and what the table holds after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

KEYS = ("a", "b", "c", "d", "e")

Row = tuple[str, int, str, int, int]
"""Key, number, change type, version, time of the commit in ms."""


@dataclass(frozen=True)
class Commit:
    """One version: what becomes of each key. None: it is deleted; ``renamed``: rows that get another key.

    ``again``: keys that are deleted and inserted, and not updated.
    """

    version: int
    time: int
    rows: dict[str, int | None]
    again: frozenset[str] = frozenset()
    renamed: tuple[tuple[str, str, int], ...] = ()

    def changes(self, table: dict[str, int]) -> list[Row]:
        """The rows of the feed, and the table after them."""
        made: list[tuple[str, int, str]] = []
        for old, new, number in self.renamed:
            made += [(old, table.pop(old), "update_preimage"), (new, number, "update_postimage")]
            table[new] = number
        for key, number in self.rows.items():
            before = table.get(key)
            if number is None:
                if before is not None:
                    made.append((key, table.pop(key), "delete"))
                continue
            if before is not None:
                kinds = ("delete", "insert") if key in self.again else ("update_preimage", "update_postimage")
                made += [(key, before, kinds[0]), (key, number, kinds[1])]
            else:
                made.append((key, number, "insert"))
            table[key] = number
        return [(key, number, kind, self.version, self.time) for key, number, kind in made]


@dataclass(frozen=True)
class History:
    """Commits, the rows of each, the table after each, and how many preimages say nothing new."""

    rows: list[list[Row]]
    tables: list[dict[str, int]]

    @property
    def passed(self) -> int:
        """Preimages of rows that their version writes under the same key."""
        return sum(
            row[2] == "update_preimage" and any(other[0] == row[0] and _is_row(other) for other in rows)
            for rows in self.rows
            for row in rows
        )

    def net(self) -> dict[int, dict[str, tuple[int, int | None]]]:
        """By version what each key becomes: (time of the commit, number or None)."""
        found: dict[int, dict[str, tuple[int, int | None]]] = {}
        for rows, table in zip(self.rows, self.tables, strict=True):
            for key, _, _, version, time in rows:
                found.setdefault(version, {})[key] = (time, table.get(key))
        return found


def _is_row(row: Row) -> bool:
    return row[2] in ("insert", "update_postimage")


@st.composite
def histories(draw: Any, most: int = 6) -> History:
    """Versions leave gaps, times stand still and go back, rows get other keys."""
    table: dict[str, int] = {}
    rows, tables, version, time = [], [], draw(st.integers(0, 3)), 1000
    for _ in range(draw(st.integers(1, most))):
        time = max(0, time + draw(st.sampled_from([0, 0, 1, 1000, -1])))
        written = draw(st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 9)))
        free = [key for key in KEYS if key not in table and key not in written]
        movable = [key for key in table if key not in written]
        renamed = ()
        if free and movable and draw(st.booleans()):
            renamed = (
                (draw(st.sampled_from(movable)), draw(st.sampled_from(free)), draw(st.integers(0, 9))),
            )
        again = draw(st.frozensets(st.sampled_from(KEYS)))
        rows.append(Commit(version, time, written, again, renamed).changes(table))
        tables.append(dict(table))
        version += draw(st.integers(1, 3))
    return History(rows, tables)
