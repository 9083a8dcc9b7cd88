"""Fields that a text names and that no value has: ``foreign_key="merchnt"`` on values of undeclared type."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

logger = logging.getLogger("crossstream.fields")

FEW = 1_000
"""So many rows may lack a field before anything is said."""


class LookUp(msgspec.Struct):
    """How often a field was there: ``found`` and ``missing`` rows; ``there``: the fields of a row that lacks it."""

    name: str
    found: int = 0
    missing: int = 0
    there: tuple[str, ...] = ()

    def add(self, other: LookUp) -> None:
        self.found += other.found
        self.missing += other.missing
        self.there = self.there or other.there


@dataclass(slots=True)
class MissingFields:
    """Watches the fields that texts name from the start of an application, and warns once of each that no row has.

    By operator and role. ``said``: what was said.
    """

    looked_up: dict[str, LookUp] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was said of fields that still no row has."""
        return tuple(text for key, text in self.said.items() if not self.looked_up[key].found)

    def add(self, looked_up: Mapping[str, LookUp]) -> None:
        """Takes in what a batch did."""
        for key, of_batch in sorted(looked_up.items()):
            total = self.looked_up.setdefault(key, LookUp(of_batch.name))
            total.add(of_batch)
            if not total.found and total.missing > FEW and key not in self.said:
                self.said[key] = _text(key, total)
                logger.warning("%s", self.said[key])


def _text(key: str, total: LookUp) -> str:
    close = difflib.get_close_matches(total.name, total.there, n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"{key} names the field {total.name!r}, and none of {total.missing:,} rows has it: "
        f"{meant}they have {', '.join(map(repr, total.there)) or 'no fields'}"
    )
