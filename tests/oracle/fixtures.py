"""Kafka's own driver: one JVM for all tests that ask it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from benchmarks.peers.built import Unavailable

from tests.oracle.oracle import Oracle

SEED = int(os.environ.setdefault("CROSSSTREAM_SEED", str(random.randrange(1_000, 1_000_000_000))))
"""The same in all processes of a run."""


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One running oracle. Skips where there is none, unless CROSSSTREAM_REQUIRE_ORACLE is set."""
    try:
        with Oracle() as running:
            yield running
    except Unavailable as reason:
        if os.environ.get("CROSSSTREAM_REQUIRE_ORACLE"):
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def fresh() -> int:
    """The first seed of a nightly test: another one each time, or CROSSSTREAM_SEED. The header of the run shows it."""
    return SEED
