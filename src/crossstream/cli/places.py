"""Where topics live, and the settings of Kafka's clients, from the options of a command and from a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from crossstream.cli.values import typed, wrong_usage
from crossstream.durations import to_milliseconds
from crossstream.errors import ConfigError, SourceError
from crossstream.storage.root import StateRoot, root_of
from crossstream.storage.uris import is_uri, shown
from crossstream.topics import TopicConnection, is_internal


def connection_of(arguments: Namespace) -> TopicConnection:
    """The topics of ``--topics-dir`` or ``--bootstrap-servers``. Raises `ConfigError`."""
    if arguments.topics_dir is not None:
        return _files(arguments)
    from crossstream.kafka import KafkaConnection

    try:
        patience = to_milliseconds(arguments.broker_patience, "broker_patience", minimum=1) / 1000
    except ConfigError as error:
        raise typed(error) from None
    return KafkaConnection(arguments.bootstrap_servers, kafka_settings(arguments), patience)


def described(arguments: Namespace) -> str:
    """The same place, for people."""
    return arguments.topics_dir or arguments.bootstrap_servers  # type: ignore[no-any-return]


def state_of(text: str) -> StateRoot:
    """The state at a path, in which ``~`` is the home of the user, or at a URI."""
    return root_of(text if is_uri(text) else Path(text).expanduser())


def partitions_of(topics: Mapping[str, int], topic: str, arguments: Namespace) -> int:
    """How many partitions a topic has; `SourceError` CS-602 if it is not there."""
    if topic in topics:
        return topics[topic]
    listed = [name for name in topics if not is_internal(name)]
    raise SourceError(
        f"there is no topic {topic!r}",
        code="CS-602",
        where={"place": described(arguments)},
        next=f"its topics are: {', '.join(listed) or 'none'}; `crossstream topics create` makes one",
    )


def _files(arguments: Namespace) -> TopicConnection:
    if arguments.kafka or arguments.kafka_config:
        raise ConfigError(
            "--kafka settings are given, but the topics are files",
            code="CS-203",
            next="drop them, or use --bootstrap-servers instead of --topics-dir",
        )
    if is_uri(arguments.topics_dir):
        raise ConfigError(
            f"topics_dir cannot be {shown(arguments.topics_dir)!r}",
            code="CS-201",
            next="give the path of a folder: only the state may be at a URI",
        )
    from crossstream.filetopics import FileTopics

    return FileTopics(arguments.topics_dir)


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
