"""Errors of what is optional: an extra that is not installed, a port that cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from crossstream.errors import ConfigError


@contextmanager
def needs(extra: str, setting: str) -> Iterator[None]:
    """Raises `ConfigError` CS-201 where an import of ``extra`` fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{setting} needs the package {error.name}, which is not installed",
            code="CS-201",
            where={"setting": setting},
            next=f'install it: pip install "crossstream[{extra}]"',
        ) from error


def not_opened(setting: str, host: str, port: int, error: OSError) -> ConfigError:
    """The error of a port that is taken, or of a host that is not one of this machine."""
    return ConfigError(
        f"{setting}: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
        code="CS-201",
        where={"setting": setting},
        next=f"give another {setting}, or stop what uses it",
    )
