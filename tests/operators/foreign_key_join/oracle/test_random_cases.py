"""Kafka's own driver and ours agree on random cases of the foreign-key join, record by record, decisions apart."""

from __future__ import annotations

import pytest

from tests.oracle.random_driver import random_cases

pytestmark = pytest.mark.oracle

TestRandomCases = random_cases("table-table-fk")
