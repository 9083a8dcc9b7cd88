"""The oracle as a pytest fixture: ``from tests.oracle.fixtures import oracle`` in a conftest."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from benchmarks.peers.java import JavaUnavailable

from tests.oracle.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One running oracle. Skips where there is none, unless CROSSSTREAM_REQUIRE_ORACLE is set."""
    try:
        with Oracle() as running:
            yield running
    except JavaUnavailable as reason:
        if os.environ.get("CROSSSTREAM_REQUIRE_ORACLE"):
            raise
        pytest.skip(str(reason))
