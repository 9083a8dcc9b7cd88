"""What an application is made of, as the user passes it: a topology, and a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from crossstream.config import StreamsConfig
from crossstream.errors import ConfigError
from crossstream.topology.graph import Topology
from crossstream.topology.location import here


def check_topology(owner: str, given: object) -> None:
    """Refuses (CS-208) what ``owner`` cannot run: it is no `Topology`."""
    if isinstance(given, Topology):
        return
    step = "pass what StreamsBuilder.build() gives"
    if isinstance(given, StreamsConfig):
        step = f"the topology comes first: {owner}(topology, config)"
    elif hasattr(given, "build") or getattr(given, "__name__", "") == "build":
        step = "finish it, by a call: builder.build()"
    raise ConfigError(
        f"{owner} runs a Topology, not a {type(given).__name__}", code="CS-208", where=here(), next=step
    )


def check_config(owner: str, given: object) -> None:
    """Refuses (CS-208) what is no `StreamsConfig`."""
    if isinstance(given, StreamsConfig):
        return
    step = "StreamsConfig(**…) makes one of a dict" if isinstance(given, Mapping) else _WRITE
    raise ConfigError(
        f"{owner} takes its settings as a StreamsConfig, not as a {type(given).__name__}",
        code="CS-208",
        where=here(),
        next=step,
    )


_WRITE = 'write StreamsConfig(application_id="…", …)'
