"""The settings of `crossstream run`: a file's `StreamsConfig`, with the options on top."""

from __future__ import annotations

import dataclasses
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from crossstream.cli.kafka_settings import kafka_settings
from crossstream.cli.loading import Loaded
from crossstream.cli.usage import typed
from crossstream.cli.values import DEAD_LETTER
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError
from crossstream.topology.graph import Sink, Source

PLAIN = (
    "application_id",
    "bootstrap_servers",
    "topics_dir",
    "state_dir",
    "partitions",
    "trigger",
    "max_records_per_batch",
    "single_task_rows",
    "max_task_idle",
    "on_lost_records",
    "on_lost_state",
    "broker_patience",
    "retain_batches",
    "idle_after",
    "durable",
    "state_mode",
)
"""Options that are settings of the same name."""
ON_ERROR = ("deserialization_errors", "processing_errors")
CLIENTS = ("kafka", "spark")


def settled(loaded: Loaded, arguments: Namespace) -> StreamsConfig:
    """The settings to run with. Raises `ConfigError`: CS-274 no place for topics, and `StreamsConfig`'s."""
    try:
        given = _given(arguments)
        config = _made(loaded, given) if loaded.config is None else _changed(loaded.config, given)
    except ConfigError as error:
        raise typed(error) from None
    reads_topics = any(isinstance(node, Source | Sink) for node in loaded.topology)
    if reads_topics and config.servers is None and config.topics_path is None:
        raise ConfigError(
            "it is not said where the topics are",
            code="CS-274",
            where={"file": loaded.file},
            next="give --topics-dir or --bootstrap-servers, or name a StreamsConfig `config` in the file",
        )
    return config


def _given(arguments: Namespace) -> dict[str, Any]:
    options = {name: value for name, value in vars(arguments).items() if value not in (None, [])}
    given = {name: options[name] for name in PLAIN if name in options}
    given |= {name: _on_error(options[name]) for name in ON_ERROR if name in options}
    clients = {"kafka": kafka_settings(arguments), "spark": dict(arguments.spark)}
    return given | {name: settings for name, settings in clients.items() if settings}


def _on_error(text: str) -> Any:
    return DeadLetter(text.removeprefix(DEAD_LETTER)) if text.startswith(DEAD_LETTER) else text


def _made(loaded: Loaded, given: dict[str, Any]) -> StreamsConfig:
    """Settings from options alone; the application is called after its file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.file.stem)
    return StreamsConfig(**{"application_id": name, **given})


def _changed(config: StreamsConfig, given: dict[str, Any]) -> StreamsConfig:
    """A file's settings with options on top; another place or name also replaces what hangs on it."""
    if "topics_dir" in given:
        given = {"bootstrap_servers": None, "kafka": {}, **given}
    elif "bootstrap_servers" in given:
        given = {"topics_dir": None, **given}
    if "application_id" in given and _has_default_state(config):
        given = {"state_dir": None, **given}
    for name in CLIENTS:
        if given.get(name):
            given[name] = {**getattr(config, name), **given[name]}
    return dataclasses.replace(config, **given)


def _has_default_state(config: StreamsConfig) -> bool:
    default = StreamsConfig(application_id=config.application_id).state_path
    return Path(config.state_path) == Path(default)
