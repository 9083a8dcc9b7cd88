"""The topics of one run."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 4
TABLES = ("person", "auction", "bid")
SIDE_INPUT = "side_input"


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics whose names begin alike."""

    prefix: str

    @classmethod
    def of(cls, prefix: str) -> Topics:
        return cls(prefix)

    @property
    def person(self) -> str:
        return f"{self.prefix}-person"

    @property
    def auction(self) -> str:
        return f"{self.prefix}-auction"

    @property
    def bid(self) -> str:
        return f"{self.prefix}-bid"

    @property
    def side_input(self) -> str:
        return f"{self.prefix}-{SIDE_INPUT}"

    def input(self, table: str) -> str:
        """The topic of a table."""
        return f"{self.prefix}-{table}"

    def result(self, query: str) -> str:
        """The topic that a query writes to."""
        return f"{self.prefix}-{query}"
