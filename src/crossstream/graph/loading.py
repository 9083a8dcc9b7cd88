"""Which tables load first: those that say so, and those that share transactions of a database with one that does."""

from __future__ import annotations

from collections.abc import Iterable

from crossstream.graph.nodes import Source


def loading(sources: Iterable[Source]) -> tuple[Source, ...]:
    """The tables that load first, in the order given. A transaction is whole only with all of its tables."""
    given = list(sources)
    together = {transactions_of(node) for node in given if node.loads_first} - {None}
    return tuple(node for node in given if node.loads_first or transactions_of(node) in together)


def transactions_of(node: Source) -> str | None:
    """The topic of the transactions by which a table is cut."""
    return None if node.unwrap is None or node.shape == "global" else node.unwrap.transactions
