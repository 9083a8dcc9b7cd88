"""Kafka's own driver and ours agree on random cases of the stream–global join, record by record, decisions apart."""

from __future__ import annotations

import pytest

from tests.oracle.random_driver import random_cases

pytestmark = pytest.mark.oracle

TestRandomCases = random_cases("stream-globaltable")
