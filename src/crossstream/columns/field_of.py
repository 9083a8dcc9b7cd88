"""A field of undeclared values, named by a text, such as ``foreign_key="customer_id"``."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class FieldOf:
    """Returns a field of a dict or an attribute of another object; None if it is missing."""

    name: str

    def __call__(self, value: Any) -> Any:
        return value.get(self.name) if isinstance(value, dict) else getattr(value, self.name, None)

    def is_in(self, value: Any) -> bool:
        """Whether the value has the field."""
        return self.name in value if isinstance(value, dict) else hasattr(value, self.name)


def names_in(value: Any) -> list[str]:
    """The names of the fields of a dict or another object."""
    if dataclasses.is_dataclass(value):
        return [one.name for one in dataclasses.fields(value)]
    return [str(name) for name in (value if isinstance(value, dict) else getattr(value, "__dict__", ()))]
