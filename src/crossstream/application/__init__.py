"""The life of an application: its loop, its topics and state at a start, publishing, and what shows it.

It knows rounds as a port, and neither Spark nor Kafka's client."""
