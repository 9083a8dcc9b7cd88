"""The folder of what this machine can make or fetch again. Nothing heavy is imported here."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """Where this machine keeps what can be fetched again: ``$CROSSSTREAM_CACHE``, else in the cache of the user."""
    chosen = os.environ.get("CROSSSTREAM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()).absolute() / f"crossstream-{os.getuid()}"
    return own.absolute() / "crossstream"
