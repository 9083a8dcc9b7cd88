"""A script: one input list and what each input must give, written like a table of the specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference import Output

SIDES = {"L": "left", "R": "right", "G": "right", "T": "third"}


@dataclass(frozen=True, slots=True)
class Input:
    """One record of an input side. ``headers``: name → hex, as in the vectors."""

    side: str
    key: Any
    value: Any
    ts: int

    def as_case(self) -> dict[str, Any]:
        return {"side": self.side, "key": self.key, "value": self.value, "ts": self.ts}

    def __str__(self) -> str:
        return f"{self.side} {Output(self.key, self.value, self.ts)}"


@dataclass(frozen=True, slots=True)
class Script:
    """``rows``: each input with its outputs, in order. ``dropped``: the final count, None where nobody says.

    ``ends``: input counts after which a micro-batch ends; None: after every input.
    """

    name: str
    operator: str
    type: str
    params: Mapping[str, Any]
    rows: tuple[tuple[Input, tuple[Output, ...]], ...]
    dropped: int | None = None
    joins: tuple[Mapping[str, Any], ...] = ()
    ends: tuple[int, ...] | None = None

    @property
    def case(self) -> dict[str, Any]:
        """The script in the format of the recorded vectors."""
        case: dict[str, Any] = {
            "id": self.name,
            "operator": self.operator,
            "type": self.type,
            "params": dict(self.params),
            "inputs": [given.as_case() for given, _ in self.rows],
        }
        if self.joins:
            case["joins"] = [dict(join) for join in self.joins]
        return case

    @property
    def expected(self) -> list[list[Output]]:
        return [list(outputs) for _, outputs in self.rows]

    def __str__(self) -> str:
        return self.name


def scripts(
    name: str,
    operator: str,
    columns: Mapping[str, Mapping[str, Any]],
    table: str,
    unit: int = 1,
    **params: Any,
) -> list[Script]:
    """The scripts of a Markdown table, one for each column of results.

    ``columns``: heading → ``type`` and the params that only this column has. ``params``: those of all.
    ``unit``: ms per unit of the timestamps. A last row that begins with "dropped" holds the final counts.
    """
    head, *body = [cells(line) for line in table.strip().splitlines() if not is_rule(line)]
    found = []
    for heading, own in columns.items():
        at = head.index(heading)
        settings = {**params, **own}
        rows = [row for row in body if row[1] != "dropped"]
        counts = [int(row[at]) for row in body if row[1] == "dropped"]
        found.append(
            Script(
                name=f"{name} {heading}",
                operator=operator,
                type=settings.pop("type"),
                joins=tuple(settings.pop("joins", ())),
                params=settings,
                rows=tuple((read_input(row[1], unit), read_outputs(row[at], unit)) for row in rows),
                dropped=counts[0] if counts else None,
            )
        )
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def is_rule(line: str) -> bool:
    return not line.strip().strip("|-: ")


def read_input(text: str, unit: int = 1) -> Input:
    """``L k=v@t``; ∅ is null."""
    side, _, rest = text.partition(" ")
    key, value, ts = read_record(rest, unit)
    return Input(SIDES[side], key, value, ts)


def read_outputs(text: str, unit: int = 1) -> tuple[Output, ...]:
    """``k=l,r@t; …``; a value ∅ alone is a tombstone."""
    return tuple(Output(*read_record(part, unit)) for part in text.split("; ") if part)


def read_record(text: str, unit: int) -> tuple[Any, Any, int]:
    key, _, rest = text.partition("=")
    value, _, ts = rest.rpartition("@")
    return (None if key == "∅" else key), (None if value == "∅" else value), round(float(ts) * unit)


def shown(outputs: Sequence[Output]) -> str:
    return "; ".join(map(str, outputs)) or "nothing"
