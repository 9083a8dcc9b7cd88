"""Headers in C are those of `crossstream.records`, byte for byte."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from confluent_kafka import cimpl
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.records import Header, decode_headers, encode_headers
from tests.kafka.edges import NATIVE, needs_native

pytestmark = needs_native

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=40)), max_size=20)


class Headers:
    """The functions of the native part, which clients call for each record."""

    def __init__(self) -> None:
        from crossstream_native import LIBRARY

        self.native, self.kafka = ctypes.CDLL(str(LIBRARY)), ctypes.CDLL(cimpl.__file__)
        self.native.cs_headers_unpack.restype = ctypes.c_void_p
        self.native.cs_headers_unpack.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.native.cs_headers_pack.restype = ctypes.c_size_t
        self.native.cs_headers_pack.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.kafka.rd_kafka_headers_destroy.argtypes = [ctypes.c_void_p]

    def repacked(self, cell: bytes) -> bytes | None:
        headers = self.native.cs_headers_unpack(cell, len(cell))
        if headers is None:
            return None
        packed = ctypes.create_string_buffer(self.native.cs_headers_pack(headers, None))
        self.native.cs_headers_pack(headers, packed)
        self.kafka.rd_kafka_headers_destroy(headers)
        return packed.raw


headers: Any = Headers() if NATIVE else None


@given(HEADERS)
@example([("n" * size, b"v" * size) for size in (0, 31, 32, 255, 256, 65_535, 65_536)])
@example([("n", None)] * 15)
@example([("n", None)] * 16)
@example([("n", b"")] * 70_000)
def test_what_was_packed_is_packed_again_the_same(pairs: Sequence[Header]) -> None:
    cell = encode_headers(pairs)
    if cell is not None:
        assert headers.repacked(cell) == cell


@given(HEADERS, st.integers(1, 10))
def test_a_cell_that_is_cut_is_refused(pairs: Sequence[Header], cut: int) -> None:
    cell = encode_headers(pairs)
    if cell is not None:
        assert headers.repacked(cell[:-cut]) is None
        assert headers.repacked(cell + b"\xc0") is None


@given(
    st.lists(st.sampled_from([b"\x90", b"\x91", b"\x92", b"\xa1a", b"\xc0", b"\xc4\x01", b"\xd9", b"\x00"]))
)
def test_what_it_takes_means_the_same_to_python(parts: Sequence[bytes]) -> None:
    cell = b"".join(parts)
    repacked = headers.repacked(cell)
    if repacked is not None and b"\0" not in cell:  # a name ends there for librdkafka
        assert decode_headers(repacked) == decode_headers(cell)
