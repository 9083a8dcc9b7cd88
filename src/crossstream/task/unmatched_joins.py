"""Joins whose keys never meet: an application warns once of each. Page: docs/bad-records.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph
from crossstream.task.batch import Report
from crossstream.task.missing_fields import MissingFields

logger = logging.getLogger("crossstream.joins")

FEW = 1_000
"""So many rows may find no partner before anything is said."""

_JOINS = (
    graph.StreamStreamJoin,
    graph.StreamTableJoin,
    graph.StreamGlobalJoin,
    graph.TableJoin,
    graph.ForeignKeyJoin,
)


@dataclass(slots=True)
class UnmatchedJoins:
    """Watches the joins of an application from its start, and warns once of each whose keys never meet; and its fields.

    ``sides``: of each join, the operators on its left and on its right. ``met``: joins in which a row found a partner.
    ``vain``: rows that found none, since both sides have had keys; ``seen``: has one of each side.
    """

    sides: dict[str, tuple[str, str]]
    met: set[str] = field(default_factory=set)
    vain: dict[str, int] = field(default_factory=dict)
    seen: Report = field(default_factory=Report)
    said: dict[str, str] = field(default_factory=dict)
    fields: MissingFields = field(default_factory=MissingFields)

    @classmethod
    def of(cls, topology: Graph) -> UnmatchedJoins:
        return cls({name: sides for node in topology for name, sides in _sides(node)})

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was said of joins in which still no row has found a partner, and of fields that no row has."""
        of_joins = (text for name, text in self.said.items() if name not in self.met)
        return (*of_joins, *self.fields.warnings)

    @property
    def wants_keys(self) -> bool:
        """Whether of a join in which no row has found a partner not both sides are known to have keys."""
        return any(None in self.seen.keys.get(name, (None,)) for name in self.sides.keys() - self.met)

    def add(self, report: Report) -> None:
        """Takes in what a batch did."""
        self.fields.add(report.looked_up)
        self.met.update(name for name, rows in report.matched.items() if rows)
        self.seen.note_keys(report.keys)
        for name in sorted(report.unmatched.keys() - self.met):
            left, right = self.seen.keys.get(name, (None, None))
            if left is None or right is None:
                continue
            self.vain[name] = self.vain.get(name, 0) + report.unmatched[name]
            if self.vain[name] > FEW and name not in self.said:
                self.said[name] = self._text(name, left, right)
                logger.warning("%s", self.said[name])

    def _text(self, name: str, left: tuple[str, str], right: tuple[str, str]) -> str:
        (asked, kind), (there, other) = left, right
        one, another = self.sides[name]
        alike = "compare the keys of both sides, and which rows come first"
        return (
            f"{name}: none of {self.vain[name]:,} rows found a partner: {one} asks for the key {asked} ({kind}), "
            f"{another} has keys such as {there} ({other}); "
            + (alike if kind == other else "give both sides keys of one kind")
        )


def _sides(node: graph.Node) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(node, _JOINS):
        yield node.name, (node.parents[0], node.parents[1])
    elif isinstance(node, graph.ManyJoin):
        for name, right in zip(node.names, node.parents[1:], strict=True):
            yield f"{node.name}: {name}", (node.parents[0], right)
