"""Places of events in the log of a database, by which they are ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import UNSET

from crossstream.serdes.debezium.convert import bad
from crossstream.serdes.debezium.events import NO_POSITION


def flat_names(path: str | None) -> tuple[str, ...]:
    """The fields of a plain row that may have the place: the name itself, and the name that event flattening gives."""
    if path is None:
        return ()
    flat = "__" + path.replace(".", "_")
    return (flat,) if "." in path or path == "ts_ms" else (path, flat)


def as_numbers(places: list[Any], path: str) -> np.ndarray:
    kinds = set(map(type, places))
    if kinds == {int}:
        return np.array(places, np.int64)
    try:
        return np.array(
            [NO_POSITION if place is None or place is UNSET else int(place) for place in places], np.int64
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise bad(f"{path} is no whole number of 64 bits ({error}): order by source.ts_ms") from error
