"""What the configuration says about every task."""

from __future__ import annotations

from crossstream.config import DeadLetter, OnError, StreamsConfig
from crossstream.engine.failures import Policy
from crossstream.engine.services import Settings


def policy_of(setting: OnError) -> Policy:
    """The policy that ``"fail"``, ``"skip"`` or a `DeadLetter` stands for."""
    if isinstance(setting, DeadLetter):
        return Policy("dead-letter", setting.topic, None if setting.spill is None else str(setting.spill))
    return Policy(setting)


def settings_of(config: StreamsConfig) -> Settings:
    return Settings(policy_of(config.deserialization_errors), policy_of(config.processing_errors))
