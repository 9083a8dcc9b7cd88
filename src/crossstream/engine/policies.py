"""What the configuration says about every task."""

from __future__ import annotations

from typing import Any

from crossstream.config import StreamsConfig
from crossstream.engine.failures import Policy
from crossstream.engine.services import Settings


def policy_of(setting: Any) -> Policy:
    """The policy that ``"fail"``, ``"skip"`` or a `DeadLetter` stands for."""
    topic = getattr(setting, "topic", None)
    return Policy("dead-letter", topic) if topic is not None else Policy(setting)


def settings_of(config: StreamsConfig) -> Settings:
    return Settings(policy_of(config.deserialization_errors), policy_of(config.processing_errors))
