"""The native part, a package of its own: there where it is installed, fits, and is not switched off."""

from __future__ import annotations

import ctypes
import os
from functools import cache

INTERFACE = 1
"""Of ``native/src/native.h``; another one is not used."""
SWITCH = "CROSSSTREAM_NATIVE"
"""The environment variable that turns the native part off: ``off``."""


def native_part() -> ctypes.CDLL | None:
    """Its library, whose functions are as ``native/src`` declares them."""
    return None if is_off() else load()[0]


def is_off() -> bool:
    return os.environ.get(SWITCH) == "off"


@cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """Its library, whatever the switch says; if it is there and cannot be used, why."""
    try:
        from crossstream_native import LIBRARY
    except ImportError:
        return None, ""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        fits = found.cs_interface() == INTERFACE
    except (OSError, AttributeError) as failed:
        return None, str(failed)
    return (found, "") if fits else (None, "it is of another version")
