"""Splits, merges and prints of a `KStream`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from crossstream.api.checks import check_name, predicate_of
from crossstream.api.draft import Draft, Handle, check_same_builder, child, given_name
from crossstream.api.options import Named
from crossstream.columns.functions import Function
from crossstream.error_codes import refuse
from crossstream.errors import caller_location, user_location
from crossstream.graph.nodes import Branch, Merge, Node, Split
from crossstream.missing_names import PointsToNames
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import alike
from crossstream.typing import Predicate

S = TypeVar("S", bound=Handle)


class BranchedKStream(PointsToNames, Generic[S]):
    """The branches of a split, in the order they are tried. Made by `KStream.split`. Source: semantics 3.2.

    >>> from crossstream import Consumed, Named, StreamsBuilder, serdes
    >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> split = orders.split(Named("by-size-")).branch(lambda order: order["items"] > 9, name="big")
    >>> split.default_branch()
    {'by-size-big': <KStream by-size-big>, 'by-size-0': <KStream by-size-0>}
    """

    __slots__ = ("_branches", "_draft", "_finished", "_make", "_parent", "_prefix")

    def __init__(
        self, draft: Draft, parent: Node, prefix: str | None, make: Callable[[Draft, Node], S]
    ) -> None:
        self._draft = draft
        self._parent = parent
        self._prefix = prefix
        self._make = make
        self._branches: list[tuple[str, Function | None]] = []
        self._finished = False
        draft.open_splits[self] = user_location()

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
            what = f"the split has two branches named {label!r}"
            raise refuse("CS-120", what, **caller_location(self._parent.name))
        if self._prefix is not None:
            self._draft.check_name(label)
        self._branches.append((label, predicate))
        return self

    def _finish(self) -> dict[str, S]:
        predicates = tuple(predicate for _, predicate in self._branches)
        self._finished = True
        self._draft.open_splits.pop(self)
        split = child(self._draft, Split, "split", self._parent, self._prefix, predicates=predicates)
        made: dict[str, S] = {}
        for index, (label, _) in enumerate(self._branches):
            given = None if self._prefix is None else label
            made[label] = self._make(
                self._draft, child(self._draft, Branch, label, split, given, index=index)
            )
        return made

    def _check_open(self) -> None:
        if self._finished:
            step = "begin another: stream.split()"
            raise refuse("CS-127", "the split is finished", step, **caller_location(self._parent.name))


def merged(stream: Handle, others: tuple[Handle, ...], named: Named | None) -> Node:
    """Adds a `Merge` below the streams. Raises CS-135 for anything but streams of one builder."""
    for other in others or (None,):
        if not (isinstance(other, Handle) and other._node.shape == "stream"):
            what = f"merge takes streams, not {'nothing' if other is None else type(other).__name__}"
            step = 'pass one KStream or several; a table becomes one by to_stream(), and a name is named=Named("…")'
            raise refuse("CS-135", what, step, **caller_location("merge"))
        check_same_builder("merge", stream._draft, other._draft)
    first, *rest = nodes = [stream._node, *(other._node for other in others)]
    serdes = {
        "key": reduce(_same, [node.key for node in nodes]),
        "value": reduce(_same, [node.value for node in nodes]),
        "key_type": reduce(_same, [node.key or node.key_type for node in nodes]),
        "value_type": reduce(_same, [node.value or node.value_type for node in nodes]),
    }
    path = f"merge({','.join(node.name for node in rest)})"
    return child(stream._draft, Merge, path, first, given_name("merge", named), *rest, **serdes)


def _same(serde: EngineSerde | None, other: EngineSerde | None) -> EngineSerde | None:
    """The serde that two inputs share; None if they differ."""
    return serde if serde is not None and other is not None and alike(serde, other) else None


@dataclass(frozen=True, slots=True)
class PrintRecord:
    """Prints ``[label]: key, value`` to standard output, as Kafka's ``Printed.toSysOut`` does.

    >>> PrintRecord("orders")("o1", 7)
    [orders]: o1, 7
    """

    label: str

    def __call__(self, key: Any, value: Any) -> None:
        print(f"[{self.label}]: {key}, {value}")
