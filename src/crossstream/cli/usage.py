"""Wrong usage that argparse does not tell: words and options that do not go together."""

from __future__ import annotations

from argparse import Namespace

from crossstream.errors import ConfigError

WRONG_USAGE = "CS-281"
"""The code of it; the exit code is then 2, as it is for what argparse refuses."""


def wrong_usage(what: str, next: str) -> ConfigError:
    """The error to raise."""
    return ConfigError(what, code=WRONG_USAGE, next=next)


def refuse_without(needed: str, next: str, arguments: Namespace, *names: str) -> None:
    """Raises `ConfigError` CS-281 if an option is given that means something with ``needed`` only."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise wrong_usage(f"--{name.replace('_', '-')} goes with {needed} only", next)
