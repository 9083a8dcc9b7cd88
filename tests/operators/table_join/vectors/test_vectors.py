"""Kafka's recorded cases of the table–table join, and the tables of the rules, in batches of any size."""

from __future__ import annotations

from tests.conformance.driver import table_vectors

TestVectors = table_vectors("table-table")
