"""The native part, a package of its own: there where it is installed, fits, and is not switched off."""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache

logger = logging.getLogger("crossstream")

INTERFACE = 1
"""Of ``native/src/native.h``; another one is not used."""
SWITCH = "CROSSSTREAM_NATIVE"
"""The environment variable that turns the native part off: ``off``."""


def native_part() -> ctypes.CDLL | None:
    """Its library, whose functions are as ``native/src`` declares them."""
    return None if os.environ.get(SWITCH) == "off" else load()


@cache
def load() -> ctypes.CDLL | None:
    """Its library, whatever the switch says."""
    try:
        from crossstream_native import LIBRARY
    except ImportError:
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
        fits = found.cs_interface() == INTERFACE
    except (OSError, AttributeError) as failed:
        logger.warning("the native part is not used: %s", failed)
        return None
    if not fits:
        logger.warning("the native part is not used: it is of another version")
        return None
    return found
