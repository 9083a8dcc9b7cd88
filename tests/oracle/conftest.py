from __future__ import annotations

import pytest

from tests.oracle.fixtures import oracle

__all__ = ["oracle"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "oracle: compares with Kafka Streams' own test driver (needs Java and Maven)",
    )
