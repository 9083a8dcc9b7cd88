"""What commands are declared with: kinds of values, options that several of them have, refusals of wrong ones."""

from __future__ import annotations

import re
import sys
from argparse import PARSER, REMAINDER, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any

from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, CrossStreamError

SERDES = ["string", "json", "bytes", "int16", "int32", "int64", "float32", "float64", "boolean", "uuid"]
"""Serdes that can be named on the command line: those that need no type or schema."""
WINDOWED = re.compile(
    r"(?:session_windowed\[(?P<session>\w+)|windowed\[(?P<time>\w+), *(?P<size>[^] ][^]]*))\]"
)
"""Serdes of the keys of windowed results: of sessions, and of windows of one size."""
DEAD_LETTER = "dead-letter:"
"""Precedes the topic for records that cannot be processed."""
UI_PORT = 8642
"""The port of the page, where none is given."""
FILE = "app.py[:name]"
STATE = "STATE_DIR"


def serde(text: str) -> str:
    """A name of `SERDES`, or one of a windowed key such as ``windowed[string, 1 minute]``."""
    if text in SERDES or ((made := WINDOWED.fullmatch(text)) and (made["time"] or made["session"]) in SERDES):
        return text
    raise ArgumentTypeError(
        f"{text!r} is not one of: {', '.join(SERDES)}, windowed[SERDE, SIZE], session_windowed[SERDE]"
    )


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


def batch_or_lsn(text: str) -> int | str:
    if text.startswith("lsn:"):
        return text
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number, and no place such as lsn:0/16B3748")
    return int(text)


def share(text: str) -> float:
    try:
        found = float(text.removesuffix("%")) / 100
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share from above 0% to 100%")
    return found


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


def add_option(parser: Any, name: str, metavar: str, type: Any, help: str, **more: Any) -> None:
    """Adds an option with a value. Without a type, the metavar lists the choices."""
    if type is None:
        parser.add_argument(name, choices=metavar.split("|"), help=help, **more)
    else:
        parser.add_argument(name, type=type, metavar=metavar, help=help, **more)


def add_options(parser: Any, *rows: tuple[str, str, Any, str]) -> None:
    """Adds options without a default, as in `add_option`."""
    for row in rows:
        add_option(parser, *row)


def add_flag(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="store_true", help=help)


class Parser(ArgumentParser):
    """Refuses options that its command has not before it looks for others, and names one that is like it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        forms = {action.nargs for action in self._actions}
        if PARSER in forms:  # the options of another command follow
            self._refuse_unknown(takewhile(lambda word: word.startswith("-"), words))
        elif REMAINDER not in forms:
            self._refuse_unknown(takewhile(lambda word: word != "--", words))
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def _refuse_unknown(self, words: Iterable[str]) -> None:
        names = (word.partition("=")[0] for word in words if word.startswith("--"))
        if unknown := [name for name in names if name not in self._option_string_actions]:
            self._refuse(unknown)

    def _refuse(self, unknown: Sequence[str]) -> None:
        close = get_close_matches(unknown[0], self._option_string_actions, n=2, cutoff=0.6)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


Commands = Any  # argparse gives no public name to what add_subparsers returns


def add_command(
    commands: Commands, name: str, help: str, details: str = "", *, runs: str = "", **more: Any
) -> ArgumentParser:
    """Adds a command that ``runs`` a function (room.module:function), by default ``main`` of its module here."""
    description = details or f"{help[0].upper()}{help[1:]}."
    parser: ArgumentParser = commands.add_parser(
        name, help=help, description=description, allow_abbrev=False, **more
    )
    parser.set_defaults(command=f"crossstream.{runs or f'cli.{name}:main'}")
    add_flag(parser, "--debug", "show tracebacks and everything Spark prints")
    return parser


def add_group(
    commands: Commands, name: str, help: str, description: str, module: str, room: str = "cli"
) -> Callable[..., ArgumentParser]:
    """Adds a command with actions; the result adds an action that runs the function of its name."""
    parser = commands.add_parser(name, help=help, description=description)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def add(action: str, help: str, details: str = "") -> ArgumentParser:
        return add_command(actions, action, help, details, runs=f"{room}.{module}:{action}")

    return add


def add_format(parser: ArgumentParser, *choices: str) -> None:
    help = "json: a line for each row (default: %(default)s)"
    add_option(parser, "--format", "|".join(choices), None, help, default=choices[0])


def add_connection(parser: ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(required=True), *TOPICS)
    add_kafka(parser)
    help, patience = "default: %(default)s", "10 seconds"
    add_option(parser, "--broker-patience", "DURATION", duration, help, default=patience)


def add_serdes(parser: ArgumentParser) -> None:
    for part, default in (("key", "string"), ("value", "json")):
        help = (
            f"of the {part}s: {', '.join(SERDES)}; of windows 'windowed[string, 1 minute]', of sessions "
            "'session_windowed[string]' (default: %(default)s)"
        )
        add_option(parser, f"--{part}-serde", "SERDE", serde, help, default=default)


def add_kafka(parser: Any) -> None:
    file = "settings of Kafka's clients, one NAME=VALUE in each line"
    add_options(parser, ("--kafka-config", "FILE", some, file))
    more = "one more setting; may be repeated. The process list shows it: put passwords into the file"
    add_assignments(parser, "--kafka", more)


def add_assignments(parser: Any, name: str, help: str) -> None:
    parser.add_argument(name, action="append", type=assignment, default=[], metavar="NAME=VALUE", help=help)


WRONG_USAGE = "CS-281"
"""An error with this code exits with 2, as argparse does."""


def wrong_usage(what: str, next: str) -> CrossStreamError:
    return refuse(WRONG_USAGE, what, next)


def refuse_without(needed: str, next: str, arguments: Namespace, *names: str) -> None:
    """Raises `ConfigError` CS-281 for an option that means something with ``needed`` only."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise wrong_usage(f"--{name.replace('_', '-')} works with {needed} only", next)


def kafka_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file of ``--kafka-config``; those of ``--kafka`` override them.

    Raises `ConfigError`: CS-270 for a file that cannot be read, CS-281 for a line that is not a setting.
    """
    return (_settings_of(arguments.kafka_config) if arguments.kafka_config else {}) | dict(arguments.kafka)


def _settings_of(file: str) -> dict[str, str]:
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = f"the settings cannot be read: {getattr(error, 'strerror', None) or 'the file is not text'}"
        step = "check the path after --kafka-config and the rights on the file"
        raise refuse("CS-270", what, step, file=file) from error
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


def of_option(error: ConfigError) -> ConfigError:
    """The error of a setting that was typed as an option: without a line of code, and in words of the shell."""
    error.where.pop("line", None)
    if error.code == "CS-210":
        error.next = 'give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"'
    return error


def add_differences(parser: ArgumentParser) -> None:
    add_option(parser, "--max", "N", positive, "show N rows (default: %(default)s)", default=10)
    add_format(parser, "table", "json")


def add_inputs(parser: ArgumentParser) -> None:
    add_options(parser.add_mutually_exclusive_group(), *TOPICS)
    add_kafka(parser)
