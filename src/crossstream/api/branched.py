"""Splits, merges and prints of a `KStream`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from crossstream.api.checks import check_name, predicate_of
from crossstream.api.draft import Draft, Handle, check_same_builder, child, given_name, misplaced_name
from crossstream.api.options import Named
from crossstream.api.serde_rules import same
from crossstream.columns.functions import Function
from crossstream.errors import TopologyError, caller_location, user_location
from crossstream.graph.nodes import Branch, Merge, Node, Split
from crossstream.typing import Predicate

S = TypeVar("S", bound=Handle)


class BranchedKStream(Generic[S]):
    """The branches of a split, in the order they are tried. Made by `KStream.split`. Source: semantics 3.2.

    >>> from crossstream import Consumed, Named, StreamsBuilder, serdes
    >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> split = orders.split(Named("by-size-")).branch(lambda order: order["items"] > 9, name="big")
    >>> split.default_branch()
    {'by-size-big': <KStream by-size-big>, 'by-size-0': <KStream by-size-0>}
    """

    __slots__ = ("_begun", "_branches", "_draft", "_finished", "_make", "_parent", "_prefix")

    def __init__(
        self, draft: Draft, parent: Node, prefix: str | None, make: Callable[[Draft, Node], S]
    ) -> None:
        self._draft = draft
        self._parent = parent
        self._prefix = prefix
        self._make = make
        self._branches: list[tuple[str, Function | None]] = []
        self._finished = False
        self._begun = object()
        draft.open_splits[self._begun] = user_location()

    def branch(self, predicate: Predicate, name: str | None = None) -> BranchedKStream[S]:
        """Adds a branch; its key in the result is ``name``, else its number, from 1.

        Raises CS-102 for a bad name, CS-120 for a name that is taken, CS-127 after the end of the split.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> sorted(orders.split().branch(lambda order: order["paid"]).no_default_branch())
        ['1']
        """
        return self._add(name, str(len(self._branches) + 1), predicate_of("branch", predicate, self._parent))

    def default_branch(self, name: str | None = None) -> dict[str, S]:
        """Ends the split: other records go to a last branch, ``name``, else ``0``.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.split().default_branch("all")
        {'all': <KStream orders.split.all>}
        """
        return self._add(name, "0", None)._finish()

    def no_default_branch(self) -> dict[str, S]:
        """Ends the split: other records are dropped.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.split().branch(lambda order: order["paid"], "paid").no_default_branch()
        {'paid': <KStream orders.split.paid>}
        """
        self._check_open()
        return self._finish()

    def _add(self, name: str | None, number: str, predicate: Function | None) -> BranchedKStream[S]:
        self._check_open()
        check_name("branch", "name", name, optional=True)
        label = f"{self._prefix or ''}{name or number}"
        if label in (taken for taken, _ in self._branches):
            raise TopologyError(
                f"the split has two branches named {label!r}",
                code="CS-120",
                where=caller_location(self._parent.name),
                next="give each branch another name",
            )
        if self._prefix is not None:
            self._draft.check_name(label)
        self._branches.append((label, predicate))
        return self

    def _finish(self) -> dict[str, S]:
        predicates = tuple(predicate for _, predicate in self._branches)
        self._finished = True
        self._draft.open_splits.pop(self._begun)
        with self._draft.all_or_nothing():
            split = child(self._draft, Split, "split", self._parent, self._prefix, predicates=predicates)
            return {label: self._branch(split, at, label) for at, (label, _) in enumerate(self._branches)}

    def _branch(self, split: Split, index: int, label: str) -> S:
        given = None if self._prefix is None else label
        return self._make(self._draft, child(self._draft, Branch, label, split, given, index=index))

    def _check_open(self) -> None:
        if self._finished:
            raise TopologyError(
                "the split is finished",
                code="CS-127",
                where=caller_location(self._parent.name),
                next="begin another: stream.split()",
            )


def merged(stream: Handle, others: tuple[Handle, ...], named: Named | None) -> Node:
    """Adds a `Merge` below the streams. Raises CS-135 for anything but streams of one builder."""
    if not others:
        raise _not_a_stream(None)
    for other in others:
        if not is_stream(other):
            raise _not_a_stream(other)
        check_same_builder("merge", stream._draft, other._draft)
    nodes = [stream._node, *(other._node for other in others)]
    serdes = {
        "key": reduce(same, [node.key for node in nodes]),
        "value": reduce(same, [node.value for node in nodes]),
        "key_type": reduce(same, [node.key or node.key_type for node in nodes]),
        "value_type": reduce(same, [node.value or node.value_type for node in nodes]),
    }
    path = f"merge({','.join(node.name for node in nodes[1:])})"
    parents = tuple(node.name for node in nodes)
    name = given_name("merge", named)
    return child(stream._draft, Merge, path, stream._node, name, parents=parents, **serdes)


def is_stream(given: object) -> bool:
    node = getattr(given, "_node", None)
    return isinstance(node, Node) and node.shape == "stream"


def _not_a_stream(given: object) -> TopologyError:
    if isinstance(given, Named):
        return misplaced_name("merge", "one of the streams")
    return TopologyError(
        f"merge takes streams, not {'nothing' if given is None else type(given).__name__}",
        code="CS-135",
        where=caller_location("merge"),
        next="pass one KStream or several; a table becomes one by to_stream()",
    )


@dataclass(frozen=True, slots=True)
class PrintRecord:
    """Prints ``[label]: key, value`` to standard output, as Kafka's ``Printed.toSysOut`` does.

    >>> PrintRecord("orders")("o1", 7)
    [orders]: o1, 7
    """

    label: str

    def __call__(self, key: Any, value: Any) -> None:
        print(f"[{self.label}]: {key}, {value}")
