"""Kafka's recorded cases of the stream–stream join, and the tables of the rules, in batches of any size."""

from __future__ import annotations

from tests.conformance.driver import stream_vectors

TestVectors = stream_vectors("stream-stream")
