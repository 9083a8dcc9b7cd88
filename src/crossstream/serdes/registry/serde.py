"""What the serdes of a schema registry have in common: the frame in front of each payload, and a subject.

The frame has 5 bytes: 0, and the id of the writer's schema, big-endian.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import SerdeError
from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import ByColumns
from crossstream.serdes.registry.client import (
    Kind,
    Reference,
    Registered,
    RegistrySettings,
    Strategy,
    connection,
    subject_name,
)

INTERNAL_ID = 0
"""The id in frames that do not leave the application: payload of the declared schema. A registry gives no id 0.

Keys are written so, for one schema may have several ids, and equal keys need equal bytes.
"""

FRAME = 5


class Frames(NamedTuple):
    """The parts of frames. ``ids``: -1 for nulls and bad rows, whose payload is null. ``bad``: reasons, by row."""

    ids: npt.NDArray[np.int32]
    payload: pa.LargeBinaryArray
    bad: dict[int, str]


def split_frames(data: pa.LargeBinaryArray) -> Frames:
    """Ids and payloads. Bad rows do not disturb others.

    >>> frames = split_frames(pa.array([b"\\0\\0\\0\\0\\7{}", None, b"{}"], pa.large_binary()))
    >>> frames.ids.tolist(), frames.payload.to_pylist()
    ([7, -1, -1], [b'{}', None, None])
    >>> frames.bad
    {2: "no frame of a schema registry: the first byte is b'{', not 0"}
    """
    positions, rows, there = arrays.offsets(data), arrays.content(data), arrays.validity(data)
    ids = np.full(len(data), -1, np.int32)
    if not len(data):
        return Frames(ids, data, {})
    sizes, begin = np.diff(positions), positions[:-1]
    long = sizes >= FRAME if there is None else there & (sizes >= FRAME)
    magic = np.zeros(len(data), np.bool_)
    magic[long] = rows[begin[long]] == 0
    heads = rows[begin[magic][:, None] + np.arange(1, FRAME)]
    ids[magic] = np.ascontiguousarray(heads).view(">i4").ravel()
    good = magic & (ids >= 0)
    ids[~good] = -1
    wrong = np.flatnonzero(~good if there is None else there & ~good).tolist()
    bad = {row: _frame_fault(data[row].as_py()) for row in wrong}
    payload = arrays.without_first(data, FRAME, good)
    return Frames(ids, payload, bad)


def only_id(data: pa.LargeBinaryArray) -> int | None:
    """The id in all frames, if there is one: then payloads are read where they are. None: look at each frame."""
    positions = arrays.offsets(data)
    if not len(data) or data.null_count or int(np.diff(positions).min()) < FRAME:
        return None
    heads = arrays.content(data)[positions[:-1, None] + np.arange(FRAME)]
    if heads[0, 0] != 0 or heads[0, 1] >= 0x80 or (heads != heads[0]).any():
        return None
    return int.from_bytes(heads[0, 1:].tobytes(), "big")


def framed_parts(data: pa.LargeBinaryArray) -> tuple[Frames, int]:
    """The parts of frames, and how many bytes are in front of each payload.

    If all frames have one id, the payloads stay where they are, and ``ids`` is that id alone.
    """
    one = only_id(data)
    return (split_frames(data), 0) if one is None else (Frames(np.array([one], np.int32), data, {}), FRAME)


def _frame_fault(row: bytes) -> str:
    if row[:1] not in (b"", b"\0"):
        hint = "; its schema id is in the headers" if row[:1] == b"\1" else ""
        return f"no frame of a schema registry: the first byte is {row[:1]!r}, not 0{hint}"
    if len(row) < FRAME:
        return f"no frame of a schema registry, which has {FRAME} bytes: there are {len(row)}"
    return "the schema id in the frame is negative"


def put_frames(id: int, payload: pa.LargeBinaryArray, after: bytes = b"") -> pa.LargeBinaryArray:
    """Payloads behind frames; nulls stay nulls. ``after``: goes behind the id.

    >>> put_frames(7, pa.array([b"{}", None], pa.large_binary())).to_pylist()
    [b'\\x00\\x00\\x00\\x00\\x07{}', None]
    """
    head = pa.scalar(b"\0" + id.to_bytes(4, "big") + after, arrays.LARGE_BINARY)
    return arrays.joined(head, payload)


def frame_hint(row: bytes | None) -> str:
    """What to add to the reason why another serde cannot read a row, if it looks like a frame."""
    if (
        row is None
        or len(row) < FRAME
        or row[0] != 0
        or not 0 < (id := int.from_bytes(row[1:FRAME], "big")) < 2**31
    ):
        return ""
    return (
        f"; this looks like the frame of a schema registry (schema id {id}): use serdes.confluent_avro(…), "
        "serdes.confluent_json(…) or serdes.confluent_protobuf(…)"
    )


def check_ids(
    settings: RegistrySettings, ids: npt.NDArray[np.int32], kind: Kind, form: str | None = None
) -> tuple[dict[int, Registered], dict[int, str]]:
    """The schemas of these ids, and why others cannot be read: unknown, or of another format. Nulls (-1) and
    `INTERNAL_ID` are passed over."""
    found: dict[int, Registered] = {}
    bad: dict[int, str] = {}
    for id in np.unique(ids).tolist():
        if id in (-1, INTERNAL_ID):
            continue
        try:
            schema = connection(settings).schema_of(id, form)
        except SerdeError as error:
            if error.code != errors.UNDECODABLE:
                raise
            bad[id] = error.what
            continue
        if schema.kind == kind:
            found[id] = schema
        else:
            name = {"AVRO": "confluent_avro", "JSON": "confluent_json", "PROTOBUF": "confluent_protobuf"}
            bad[id] = (
                f"schema id {id} is {schema.kind}, not {kind}: use serdes.{name.get(schema.kind, '…')}(…)"
            )
    return found, bad


S = TypeVar("S", bound="RegistrySerde")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySerde(ByColumns, ABC):
    """A serde of one format. ``target``: the subject that it writes for; None: inside the application."""

    kind: ClassVar[Kind]
    varied: ClassVar[bool] = True

    registry: RegistrySettings
    subject: str | None = field(default=None, compare=False)
    strategy: Strategy = field(default="topic", compare=False)
    auto_register: bool = field(default=True, compare=False)
    target: str | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """As `Serde.name`."""

    @property
    @abstractmethod
    def record_name(self) -> str | None:
        """The name of the schema, of which some strategies make the subject."""

    @abstractmethod
    def _id_for(self, subject: str) -> int:
        """The id of the schema that is written."""

    @property
    def knows_topics(self) -> bool:
        return True

    def read_from(self: S, topic: str | None, is_key: bool) -> S:
        """As `EngineSerde.read_from`: any schema of the format is read, whatever its subject."""
        return self

    def written_to(self: S, topic: str | None, is_key: bool) -> S:
        return replace(
            self, target=self.subject or subject_name(self.strategy, topic, is_key, self.record_name)
        )

    def _framed(self, payload: pa.LargeBinaryArray, after: bytes = b"") -> pa.LargeBinaryArray:
        if payload.null_count == len(payload):
            return payload
        id = INTERNAL_ID if self.target is None else self._id_for(self.target)
        return put_frames(id, payload, after)

    def _unframed(
        self, data: pa.LargeBinaryArray, form: str | None = None
    ) -> tuple[Frames, dict[int, Registered]]:
        """The parts of frames, and the schemas. Rows of schemas that cannot be read are bad."""
        frames = split_frames(data)
        schemas, unknown = check_ids(self.registry, frames.ids, self.kind, form)
        for id, reason in unknown.items():
            frames.bad.update(dict.fromkeys(np.flatnonzero(frames.ids == id).tolist(), reason))
        return frames, schemas

    def _registered(self, subject: str, text: str, references: Sequence[Reference | tuple[str, str]]) -> int:
        return connection(self.registry).register(subject, self.kind, text, references, self.auto_register)

    def _newest(self, subject: str) -> Registered:
        """The newest schema of a subject, which must be of the format."""
        found = connection(self.registry).latest(subject)
        if found.kind != self.kind:
            what = f"the newest schema of subject {subject} is {found.kind}, not {self.kind}"
            step = "use the serde of that format, or another subject"
            raise refuse(errors.REFUSED_SCHEMA, what, step, serde=self.name, registry=self.registry.url)
        return found
