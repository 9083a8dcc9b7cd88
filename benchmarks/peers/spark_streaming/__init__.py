"""Spark's own Structured Streaming: Nexmark's queries in Spark SQL, from Kafka to Kafka."""
