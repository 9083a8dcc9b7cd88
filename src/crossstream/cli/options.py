"""What options have in common: their types, those that several commands take, and wrong usage."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from crossstream.errors import ConfigError

SERDES = ["string", "json", "bytes", "int16", "int32", "int64", "float32", "float64", "boolean", "uuid"]
"""Serdes that can be named on the command line: those that need no type or schema."""
DEAD_LETTER = "dead-letter:"
"""Precedes the topic for records that cannot be processed."""


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
        raise ArgumentTypeError("the text is empty")
    return text


def port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ArgumentTypeError(f"{text!r} is not a port: 1 to 65535")
    return int(text)


def duration(text: str) -> str | int:
    """A bare number is milliseconds; the setting checks whether a text is a duration."""
    return int(text) if text.isdecimal() else text


def on_error(text: str) -> str:
    if text not in ("fail", "skip") and not text.startswith(DEAD_LETTER):
        raise ArgumentTypeError(f"{text!r} is not one of: fail, skip, {DEAD_LETTER}TOPIC")
    return text


TOPICS = (
    ("--topics-dir", "DIR", some, "the folder of file topics"),
    ("--bootstrap-servers", "HOST:PORT", some, "Kafka's brokers"),
)


def add_options(parser: Any, *rows: tuple[str, str, Any, str]) -> None:
    """Adds options without a default: name, metavar, type, help. Without a type, the metavar lists the choices."""
    for name, metavar, type, help in rows:
        if type is None:
            parser.add_argument(name, choices=metavar.split("|"), help=help)
        else:
            parser.add_argument(name, type=type, metavar=metavar, help=help)


def add_format(parser: ArgumentParser, *choices: str) -> None:
    help = "json: a line for each row (default: %(default)s)"
    parser.add_argument("--format", choices=choices, default=choices[0], help=help)


def add_connection(parser: ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(required=True), *TOPICS)
    add_kafka(parser)
    help, patience = "default: %(default)s", "10 seconds"
    parser.add_argument("--broker-patience", type=duration, default=patience, metavar="DURATION", help=help)


def add_serdes(parser: ArgumentParser) -> None:
    for part, default in (("key", "string"), ("value", "json")):
        help = f"of the {part}s: {', '.join(SERDES)} (default: %(default)s)"
        parser.add_argument(f"--{part}-serde", choices=SERDES, default=default, metavar="SERDE", help=help)


def add_kafka(parser: Any) -> None:
    file = "settings of Kafka's clients, one NAME=VALUE in each line"
    add_options(parser, ("--kafka-config", "FILE", some, file))
    more = "one more setting; may be repeated. The process list shows it: put passwords into the file"
    add_assignments(parser, "--kafka", more)


def kafka_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file of ``--kafka-config``; those of ``--kafka`` override them.

    Raises `ConfigError`: CS-270 for a file that cannot be read, CS-281 for a line that is not a setting.
    """
    return (_settings_of(arguments.kafka_config) if arguments.kafka_config else {}) | dict(arguments.kafka)


def _settings_of(file: str) -> dict[str, str]:
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the settings cannot be read: {getattr(error, 'strerror', None) or 'the file is not text'}",
            code="CS-270",
            where={"file": file},
            next="check the path after --kafka-config and the rights on the file",
        ) from error
    settings = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not equals or not name.strip():  # not shown: it may be a secret
            next = "write name=value, or start the line with #"
            raise wrong_usage(f"line {number} of {file} is not a setting", next)
        settings[name.strip()] = value.strip()
    return settings


def add_assignments(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="append", type=assignment, default=[], metavar="NAME=VALUE", help=help)


WRONG_USAGE = "CS-281"
"""An error with this code exits with 2, as argparse does."""


def wrong_usage(what: str, next: str) -> ConfigError:
    return ConfigError(what, code=WRONG_USAGE, next=next)


def refuse_without(needed: str, next: str, arguments: Namespace, *names: str) -> None:
    """Raises `ConfigError` CS-281 for an option that means something with ``needed`` only."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise wrong_usage(f"--{name.replace('_', '-')} works with {needed} only", next)


def of_option(error: ConfigError) -> ConfigError:
    """The error of a setting that was typed as an option: without a line of code, and in words of the shell."""
    error.where.pop("line", None)
    if error.code == "CS-210":
        error.next = 'give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"'
    return error
