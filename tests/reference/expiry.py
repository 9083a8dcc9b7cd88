"""Rows that expire, as plain Python: the records of a topic, with the deletes in it that a ttl stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Record = tuple[Any, Any, int]
"""Key, value, timestamp."""


def with_deletes(records: Sequence[Record], ttl: int, tick: int = 1) -> list[list[Record]]:
    """For each record of one partition what stands in its place: the record, and the deletes that it brings about.

    A record that has expired when it comes is a delete. Deletes of one record are in order of time, then of keys. The
    clock goes in steps of ``tick``.
    """
    rows: dict[Any, int] = {}
    clock, out = -1, []
    for key, value, ts in records:
        late = value is not None and clock >= ts + ttl
        here = [(key, None, ts + ttl) if late else (key, value, ts)]
        rows.pop(key, None)
        if value is not None and not late:
            rows[key] = ts
        clock = max(clock, ts // tick * tick)
        ended = sorted((end, one) for one, end in rows.items() if end + ttl <= clock)
        for end, one in ended:
            del rows[one]
            here.append((one, None, end + ttl))
        out.append(here)
    return out
