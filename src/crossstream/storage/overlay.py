"""Files over those of a folder: what is written stays in memory, and the folder is as it was."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from crossstream.storage.files import Storage, Written, buffers_of


@dataclass(frozen=True, slots=True)
class Overlay:
    """Reads what was written here, else what is ``below``. ``written``: by the name of the file."""

    below: Storage
    written: dict[str, pa.Buffer] = field(default_factory=dict)

    def write(self, name: str, data: Written) -> None:
        self.written[name] = pa.py_buffer(b"".join(buffers_of(data)))

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        found = self.written.get(name)
        return self.below.read(name, original=original) if found is None else found
