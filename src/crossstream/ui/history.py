"""The course of a few numbers over the last minutes and hours, in a file of fixed size.

The file has two rings of slots: one slot for every two seconds of the last half hour, and one for every minute of the
last day. The time of a sample decides its slot, and is in it, so a slot that was not written again is known by its age.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from crossstream.metrics.observation import Observation
from crossstream.storage.door import inside, read_plain
from crossstream.storage.files import opener

FIELDS = ("time", "lag", "read", "written", "batch", "age")
"""Of a sample: seconds since the epoch, records that wait, records read and written a second, milliseconds of the last
batch, seconds since the timestamp of the newest result."""

_SLOT = struct.Struct(f"<{len(FIELDS)}d")
RINGS = {"minutes": (2, 901), "hours": (60, 1441)}
"""Seconds of a slot, and slots, of each ring: one more than its time has, which the newest sample may be writing."""

SIZE = sum(slots for _, slots in RINGS.values()) * _SLOT.size
"""Bytes of the file."""

Sample = tuple[float, ...]


class History:
    """Writes the file, or reads it. ``rights``: those of a file that is made."""

    def __init__(self, path: Path, rights: int = 0o600) -> None:
        self._path = path
        self._rights = rights
        self._file: int | None = None
        self._minute: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Puts a sample into its slots."""
        file = self._opened()
        _put(file, "minutes", sample)
        if self._minute and sample[0] // 60 != self._minute[0][0] // 60:
            self._minute = []
        self._minute.append(sample)
        _put(file, "hours", _summed(self._minute))

    def read(self, ring: str, now: float) -> dict[str, list[float | None]]:
        """The samples of a ring that are not too old, oldest first, by field; None where there is no number."""
        step, slots = RINGS[ring]
        try:
            content = read_plain(self._place(), SIZE)
        except OSError:
            content = b""
        start = _start(ring)
        part = content[start : start + slots * _SLOT.size]
        part = part[: len(part) // _SLOT.size * _SLOT.size]
        fresh = sorted(
            one
            for one in _SLOT.iter_unpack(part)
            if max(0.0, now - step * (slots - 1)) < one[0] <= now + step
        )
        columns = zip(*fresh, strict=True) if fresh else [() for _ in FIELDS]
        return {
            name: [None if math.isnan(number) else number for number in column]
            for name, column in zip(FIELDS, columns, strict=True)
        }

    def _opened(self) -> int:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = opener(self._rights)(str(self._place()), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            if os.fstat(self._file).st_size != SIZE:
                os.ftruncate(self._file, 0)
                os.ftruncate(self._file, SIZE)
        return self._file

    def _place(self) -> Path:
        """The path. Raises `OSError` if its folder is a link out of the state."""
        return inside(self._path.parents[1], "/".join(self._path.parts[-2:]))

    def close(self) -> None:
        """Closes the file; a further sample opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _start(ring: str) -> int:
    return 0 if ring == "minutes" else RINGS["minutes"][1] * _SLOT.size


def _put(file: int, ring: str, sample: Sample) -> None:
    step, slots = RINGS[ring]
    os.pwrite(file, _SLOT.pack(*sample), _start(ring) + int(sample[0] // step) % slots * _SLOT.size)


def _summed(samples: list[Sample]) -> Sample:
    """One sample for several: their largest lag, batch and age, and their mean rates."""
    _, *columns = zip(*samples, strict=True)
    found = [samples[0][0] - samples[0][0] % 60]
    for name, column in zip(FIELDS[1:], columns, strict=True):
        known = [number for number in column if not math.isnan(number)]
        if not known:
            found.append(math.nan)
        else:
            found.append(sum(known) / len(known) if name in ("read", "written") else max(known))
    return tuple(found)


class Rates:
    """Samples of an application from one `Observation` to the next."""

    def __init__(self) -> None:
        self._last: Observation | None = None

    def samples(self, seen: Observation) -> Iterator[Sample]:
        """The sample of this moment; none for the first one, which has no rate."""
        last, self._last = self._last, seen
        if last is None or seen.time <= last.time:
            return
        elapsed = seen.time - last.time
        is_new = seen.last is not None and seen.last != last.last
        age = seen.result_age
        yield (
            seen.time,
            float(seen.total_lag),
            max(0, seen.read - last.read) / elapsed,
            max(0, seen.written - last.written) / elapsed,
            seen.last.seconds * 1000 if is_new and seen.last is not None else math.nan,
            math.nan if age is None else age,
        )
