"""What a node says of its rows and stores for the day when the code changes (decision 0049)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Lasting:
    """The part of a node that decides what of its state stays. What it does not say is as for most operators."""

    __slots__ = ()
    parents: tuple[str, ...]

    settings_aside: ClassVar[frozenset[str]] = frozenset()
    """The settings that do not decide which rows it has, or has written: how it once began, what it calls with them."""
    result_settings: ClassVar[frozenset[str]] = frozenset()
    """The settings that decide its results, and not what it keeps for itself."""

    @property
    def from_rows(self) -> bool:
        """Whether its rows follow from those that its parents have, in whatever order these came."""
        return False

    @property
    def writes_bytes(self) -> bool:
        """Whether it writes keys and values unchanged: no function looks at them, and no table has columns for them."""
        return False

    @property
    def writes_rows(self) -> bool:
        """Whether what it writes is known by its key, so that a later record replaces an earlier one."""
        return False

    @property
    def part_names(self) -> Mapping[str, tuple[str, ...]]:
        """Settings with several parts, and what users call these."""
        return {}

    @property
    def words(self) -> Mapping[str, str]:
        """Parts of settings in words, where the parts are by the engine's numbers."""
        return {}

    @property
    def is_of_bytes(self) -> bool:
        """Whether the rows of its table are stored in the bytes of the records that it read."""
        return False

    @property
    def rows_with_headers(self) -> tuple[str, ...]:
        """The parents whose rows give their headers to its own."""
        return ()

    def fills(self, part: str) -> tuple[str, ...]:
        """The parents whose rows fill a store that it keeps for itself."""
        return self.parents

    def holds(self, part: str) -> str | None:
        """The parent whose rows are in a store that it keeps for itself; None: no rows of a table are."""
        return None
