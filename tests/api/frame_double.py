"""A double of pyspark's DataFrame: its columns, and whether it streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

CHANGES = {"_change_type": "string", "_commit_version": "bigint", "_commit_timestamp": "timestamp"}


@dataclass
class Frame:
    """``types``: of each column, as Spark writes it in short; a type of several parts as its JSON."""

    types: dict[str, Any]
    isStreaming: bool = True
    columns: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = list(self.types)

    @property
    def schema(self) -> Any:
        fields = [
            SimpleNamespace(
                name=name,
                dataType=SimpleNamespace(
                    simpleString=lambda kind=kind: str(kind), jsonValue=lambda kind=kind: kind
                ),
            )
            for name, kind in self.types.items()
        ]
        return SimpleNamespace(fields=fields)


def frame(**types: Any) -> Frame:
    return Frame(types)


def static(**types: Any) -> Frame:
    return Frame(types, isStreaming=False)


def changes(**types: Any) -> Frame:
    """With the columns of a feed of changes; None for one that is not there."""
    return Frame({name: kind for name, kind in {**CHANGES, **types}.items() if kind is not None})
