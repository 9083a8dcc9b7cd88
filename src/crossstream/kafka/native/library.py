"""Finds the native part, and librdkafka as the Python client has loaded it."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

from crossstream.serdes import native_part

logger = logging.getLogger("crossstream.kafka")


class ArrowArray(ctypes.Structure):
    """Memory for one, as Arrow's C data interface has it; nothing here looks into it."""

    _fields_ = (("words", c_int64 * 10),)


class Notice(ctypes.Structure):
    _fields_ = (("level", c_int32), ("code", c_int32), ("text", ctypes.c_char * 1016))


class Failed(ctypes.Structure):
    _fields_ = (
        ("count", c_int64),
        ("code", c_int32),
        ("partition", c_int32),
        ("topic", c_void_p),
        ("key", c_void_p),
        ("key_size", c_int64),
    )


class Run(ctypes.Structure):
    _fields_ = (
        ("rows", ArrowArray),
        ("topic", c_char_p),
        ("first", c_int64),
        ("last", c_int64),
        ("partition", c_int32),
    )


class Event(ctypes.Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("text", c_char_p),
        ("offset", c_int64),
        ("partition", c_int32),
        ("code", c_int32),
    )


class Taken(ctypes.Structure):
    _fields_ = (
        ("run_count", c_int64),
        ("event_count", c_int64),
        ("runs", POINTER(Run)),
        ("events", POINTER(Event)),
    )


class Place(ctypes.Structure):
    """librdkafka's ``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


class Partition(ctypes.Structure):
    _fields_ = (
        ("id", c_int32),
        ("err", c_int),
        ("leader", c_int32),
        ("replica_cnt", c_int),
        ("replicas", c_void_p),
        ("isr_cnt", c_int),
        ("isrs", c_void_p),
    )


class Topic(ctypes.Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition_cnt", c_int),
        ("partitions", POINTER(Partition)),
        ("err", c_int),
    )


class Metadata(ctypes.Structure):
    """librdkafka's ``rd_kafka_metadata_t``, its begin."""

    _fields_ = (
        ("broker_cnt", c_int),
        ("brokers", c_void_p),
        ("topic_cnt", c_int),
        ("topics", POINTER(Topic)),
    )


Signatures = Mapping[str, tuple[Any, list[Any]]]

OURS: Signatures = {
    "cs_load": (c_char_p, [c_char_p]),
    "cs_open": (c_void_p, [c_int, c_void_p, c_void_p, c_size_t, c_char_p, c_size_t]),
    "cs_close": (None, [c_void_p]),
    "cs_handle": (c_void_p, [c_void_p]),
    "cs_next_notice": (c_int, [c_void_p, POINTER(Notice)]),
    "cs_take_failure": (c_int, [c_void_p, POINTER(Failed)]),
    "cs_free": (None, [c_void_p]),
    "cs_take": (POINTER(Taken), [c_void_p, c_int32, c_int32]),
    "cs_outgoing_new": (c_void_p, [POINTER(ArrowArray), c_void_p, c_int32]),
    "cs_outgoing_send": (c_int, [c_void_p, c_void_p, c_char_p, POINTER(c_int64)]),
    "cs_outgoing_order": (POINTER(c_int64), [c_void_p]),
    "cs_outgoing_free": (None, [c_void_p]),
}
THEIRS: Signatures = {
    "err2str": (c_char_p, [c_int]),
    "error_code": (c_int, [c_void_p]),
    "error_string": (c_char_p, [c_void_p]),
    "error_is_fatal": (c_int, [c_void_p]),
    "error_is_retriable": (c_int, [c_void_p]),
    "error_txn_requires_abort": (c_int, [c_void_p]),
    "error_destroy": (None, [c_void_p]),
    "topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "topic_destroy": (None, [c_void_p]),
    "metadata": (c_int, [c_void_p, c_int, c_void_p, POINTER(POINTER(Metadata)), c_int]),
    "metadata_destroy": (None, [POINTER(Metadata)]),
    "topic_partition_list_new": (c_void_p, [c_int]),
    "topic_partition_list_add": (POINTER(Place), [c_void_p, c_char_p, c_int32]),
    "topic_partition_list_destroy": (None, [c_void_p]),
    "incremental_assign": (c_void_p, [c_void_p, c_void_p]),
    "incremental_unassign": (c_void_p, [c_void_p, c_void_p]),
    "assign": (c_int, [c_void_p, c_void_p]),
    "get_watermark_offsets": (
        c_int,
        [c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64)],
    ),
    "query_watermark_offsets": (
        c_int,
        [c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int],
    ),
    "poll": (c_int, [c_void_p, c_int]),
    "flush": (c_int, [c_void_p, c_int]),
    "purge": (c_int, [c_void_p, c_int]),
    "outq_len": (c_int, [c_void_p]),
    "init_transactions": (c_void_p, [c_void_p, c_int]),
    "begin_transaction": (c_void_p, [c_void_p]),
    "send_offsets_to_transaction": (c_void_p, [c_void_p, c_void_p, c_void_p, c_int]),
    "commit_transaction": (c_void_p, [c_void_p, c_int]),
    "abort_transaction": (c_void_p, [c_void_p, c_int]),
    "consumer_group_metadata_read": (c_void_p, [POINTER(c_void_p), c_char_p, c_size_t]),
    "consumer_group_metadata_destroy": (None, [c_void_p]),
}


class Library:
    """The functions of both libraries, with their types: ``library.cs_take``, ``library.kafka_poll``."""

    def __init__(self, ours: ctypes.CDLL, theirs: ctypes.CDLL) -> None:
        for name, (result, parameters) in OURS.items():
            setattr(self, name, _typed(ours, name, result, parameters))
        for name, (result, parameters) in THEIRS.items():
            setattr(self, f"kafka_{name}", _typed(theirs, f"rd_kafka_{name}", result, parameters))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # and so all that is set may be anything


def _typed(library: ctypes.CDLL, name: str, result: Any, parameters: list[Any]) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, parameters
    return function


def library() -> Library | None:
    """The native part, if it is installed, fits, and is not switched off."""
    return None if native_part.is_off() else _load()


@cache
def _load() -> Library | None:
    part, reason = native_part.load()
    if part is None:
        if reason:
            logger.warning("the native part is not used: %s", reason)
        return None
    try:
        from confluent_kafka import cimpl

        # Looking into the Python client finds what it is linked with, wherever that is.
        found = Library(part, ctypes.CDLL(cimpl.__file__))
        missing = found.cs_load(os.fsencode(cimpl.__file__))
    except (OSError, AttributeError) as failed:
        logger.warning("the native part is not used: %s", failed)
        return None
    if missing is not None:
        logger.warning("the native part is not used: librdkafka has no %s", missing.decode())
        return None
    return found
