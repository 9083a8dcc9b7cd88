"""Both ways in which records pass between Kafka and Arrow: tests of them run with each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from crossstream.kafka.native import library
from crossstream.serdes.native_part import SWITCH

NATIVE = library.library() is not None
needs_native = pytest.mark.skipif(not NATIVE, reason="crossstream-native is not installed (make setup)")

BOTH = [pytest.param("on", marks=needs_native, id="native"), pytest.param("off", id="python")]
both_edges = [
    pytest.mark.usefixtures("edge"),
    pytest.mark.parametrize("edge", BOTH, indirect=True, scope="module"),
]


@pytest.fixture(scope="module")
def edge(request: pytest.FixtureRequest) -> Iterator[str]:
    """What clients are opened: as installed, or as the test wants it."""
    wanted: str = getattr(request, "param", os.environ.get(SWITCH, "on"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(SWITCH, wanted)
        yield wanted
