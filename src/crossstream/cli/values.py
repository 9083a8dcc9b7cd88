"""What the text of an argument must be, and what is wrong with words and options. Needs nothing but argparse."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace

from crossstream.errors import ConfigError

DEAD_LETTER = "dead-letter:"
"""What stands before the topic for records that cannot be processed."""


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def some(text: str) -> str:
    if not text:
        raise ArgumentTypeError("an empty text names nothing")
    return text


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ArgumentTypeError(f"{text!r} is not a port: 1 to 65535")
    return int(text)


def duration(text: str) -> str | int:
    """A bare number is milliseconds; whether a text is a duration is for the setting to tell."""
    return int(text) if text.isdecimal() else text


def on_error(text: str) -> str:
    if text not in ("fail", "skip") and not text.startswith(DEAD_LETTER):
        raise ArgumentTypeError(f"{text!r} is none of: fail, skip, {DEAD_LETTER}TOPIC")
    return text


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
