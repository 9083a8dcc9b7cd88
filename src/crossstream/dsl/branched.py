"""`BranchedKStream`: a split under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crossstream.algebra.functions import Function
from crossstream.dsl.checks import check_name, predicate_of
from crossstream.dsl.draft import Draft
from crossstream.dsl.handle import child
from crossstream.errors import TopologyError
from crossstream.topology.graph import Branch, Node, Split
from crossstream.topology.location import here, user_location
from crossstream.typing import Predicate

if TYPE_CHECKING:
    from crossstream.dsl.kstream import KStream


class BranchedKStream:
    """The branches of a split, in the order they are tried. Made by `KStream.split`. Source: semantics 3.2.

    >>> from crossstream import Consumed, Named, StreamsBuilder, serdes
    >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
    >>> split = orders.split(Named("by-size-")).branch(lambda order: order["items"] > 9, name="big")
    >>> split.default_branch()
    {'by-size-big': <KStream by-size-big>, 'by-size-0': <KStream by-size-0>}
    """

    __slots__ = ("_begun", "_branches", "_draft", "_finished", "_make", "_parent", "_prefix")

    def __init__(
        self, draft: Draft, parent: Node, prefix: str | None, make: Callable[[Draft, Node], KStream]
    ) -> None:
        self._draft = draft
        self._parent = parent
        self._prefix = prefix
        self._make = make
        self._branches: list[tuple[str, Function | None]] = []
        self._finished = False
        self._begun = object()
        draft.open_splits[self._begun] = user_location()

    def branch(self, predicate: Predicate, name: str | None = None) -> BranchedKStream:
        """One more branch; ``name`` is its place in the result, else its number, from 1.

        Raises CS-102 for a bad name, CS-108 for one that another branch has, CS-120 for one that an operator has,
        CS-109 after the end of the split.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> sorted(orders.split().branch(lambda order: order["paid"]).no_default_branch())
        ['1']
        """
        return self._add(name, str(len(self._branches) + 1), predicate_of("branch", predicate, self._parent))

    def default_branch(self, name: str | None = None) -> dict[str, KStream]:
        """Ends the split: records for which no predicate held go to a last branch, named 0 if not otherwise.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.split().default_branch("all")
        {'all': <KStream orders.split.all>}
        """
        return self._add(name, "0", None)._finish()

    def no_default_branch(self) -> dict[str, KStream]:
        """Ends the split: records for which no predicate held are dropped.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.split().branch(lambda order: order["paid"], "paid").no_default_branch()
        {'paid': <KStream orders.split.paid>}
        """
        self._check_open()
        return self._finish()

    def _add(self, name: str | None, number: str, predicate: Function | None) -> BranchedKStream:
        self._check_open()
        check_name("branch", "name", name, optional=True)
        label = f"{self._prefix or ''}{name or number}"
        if label in (taken for taken, _ in self._branches):
            raise TopologyError(
                f"the split has two branches named {label!r}",
                code="CS-108",
                where=here(self._parent.name),
                next="give each branch a name of its own",
            )
        if self._prefix is not None:
            self._draft.check_name(label)
        self._branches.append((label, predicate))
        return self

    def _finish(self) -> dict[str, KStream]:
        predicates = tuple(predicate for _, predicate in self._branches)
        self._finished = True
        self._draft.open_splits.pop(self._begun)
        with self._draft.all_or_nothing():
            split = child(self._draft, Split, "split", self._parent, self._prefix, predicates=predicates)
            return {label: self._branch(split, at, label) for at, (label, _) in enumerate(self._branches)}

    def _branch(self, split: Split, index: int, label: str) -> KStream:
        given = None if self._prefix is None else label
        return self._make(self._draft, child(self._draft, Branch, label, split, given, index=index))

    def _check_open(self) -> None:
        if self._finished:
            raise TopologyError(
                "the split is finished, or its end was refused",
                code="CS-109",
                where=here(self._parent.name),
                next="begin another: stream.split()",
            )
