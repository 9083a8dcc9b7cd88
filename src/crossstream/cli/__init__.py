"""The command line: argument parsing and printing only.

A command's module is imported when the command runs: `crossstream --help` loads neither Polars nor PySpark.

Exit codes: 0 done, also when stopped by Ctrl-C or SIGTERM; 1 an error, printed with its code; 2 wrong usage; of `run`
75 an error that another start may not meet; of `why` 3 an answer that is not exact; of
`evolve --dry-run` 3 something to do; 130 ended at once by Ctrl-C, a
second one, or one before the application runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from crossstream.cli.arguments import make_parser
from crossstream.cli.options import WRONG_USAGE
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. ``argv``: without the program's name; default: the process's own."""
    words = sys.argv[1:] if argv is None else list(argv)
    arguments = make_parser().parse_args(words)
    arguments.words = words
    return run_command(lambda given: _command(given.command)(given), arguments)


def run_command(command: Callable[[Any], int], arguments: Any) -> int:
    """Runs a command and returns its exit code; prints an error that it raises."""
    try:
        return command(arguments)
    except CrossStreamError as error:
        return _failed(error, arguments)
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does: leave Python nothing to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a message instead of a traceback
        next = "rerun with --debug to see the traceback, and report it"
        return _failed(refuse("CS-001", type_and_text(error), next), arguments, cause=error)


def _command(name: str) -> Callable[[Any], int]:
    module, _, function = name.partition(":")
    command: Callable[[Any], int] = getattr(importlib.import_module(module), function)
    return command


def _failed(error: CrossStreamError, arguments: Any, cause: Exception | None = None) -> int:
    from crossstream.cli.console import show_error

    if arguments.debug:
        raise cause or error
    sys.stdout.flush()
    show_error(error)
    return 2 if error.code == WRONG_USAGE else 1
