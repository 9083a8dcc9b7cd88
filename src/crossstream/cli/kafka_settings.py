"""Settings of Kafka's clients, from a file and from options: what an option says, every user of the machine can see."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from crossstream.cli.usage import wrong_usage
from crossstream.errors import ConfigError


def kafka_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of ``--kafka-config``, and those of ``--kafka``, which win.

    Raises `ConfigError`: CS-270 the file cannot be read, CS-281 a line is no setting.
    """
    return (_read(arguments.kafka_config) if arguments.kafka_config else {}) | dict(arguments.kafka)


def _read(file: str) -> dict[str, str]:
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"the settings cannot be read: {why}",
            code="CS-270",
            where={"file": file},
            next="check the path after --kafka-config, and the rights on the file",
        ) from error
    settings = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not equals or not name.strip():  # not shown: it may be a secret
            raise wrong_usage(
                f"line {number} of {file} is no setting", "write name=value, or # before a remark"
            )
        settings[name.strip()] = value.strip()
    return settings
