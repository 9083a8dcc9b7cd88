"""Bytes that lie in many buffers and are written one buffer after the other, instead of copied together first.

Decision 0026.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias


class Gathered:
    """What a writer of Arrow's gives, as it gives it: a file to write to, and afterwards bytes to write on.

    The buffers are those of the columns, which must stay as they are meanwhile. Pickled it is plain bytes.
    """

    __slots__ = ("_parts", "closed", "size")

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._parts.append(data)
        self.size += count
        return count

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The writer is done; what it wrote stays."""

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[memoryview]:
        return map(memoryview, self._parts)

    def __bytes__(self) -> bytes:
        return b"".join(self)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


FEW = 512
"""Rows up to which copying buffers together is cheaper than handling them one by one."""

Written: TypeAlias = Any
"""Bytes to be written: `bytes`, a `memoryview`, a `pyarrow.Buffer`, or `Gathered`."""


def pieces_of(data: Written) -> Iterator[memoryview]:
    """The bytes, piece by piece."""
    return iter(data) if isinstance(data, Gathered) else iter([memoryview(data).cast("B")])


def whole(data: Written) -> Any:
    """The bytes in one piece."""
    return bytes(data) if isinstance(data, Gathered) else data
