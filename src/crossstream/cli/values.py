"""What the text of an argument must be, and what it is then; nothing but argparse is needed to read it."""

from __future__ import annotations

from argparse import ArgumentTypeError

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
