"""What is wrong with words and options: those that do not go together, which argparse does not tell, and values."""

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


def typed(error: ConfigError) -> ConfigError:
    """The error of a setting that was typed as an option: no line of code is to blame, and no object can be given."""
    error.where.pop("line", None)
    if error.code == "CS-210":
        error.next = 'give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"'
    return error
