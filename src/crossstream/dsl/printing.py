"""What `KStream.print` does with a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PrintRecord:
    """Prints ``[label]: key, value`` to standard output, as Kafka's ``Printed.toSysOut`` does.

    >>> PrintRecord("orders")("o1", 7)
    [orders]: o1, 7
    """

    label: str

    def __call__(self, key: Any, value: Any) -> None:
        print(f"[{self.label}]: {key}, {value}")
