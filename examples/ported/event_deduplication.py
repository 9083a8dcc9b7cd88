"""EventDeduplicationLambdaIntegrationTest of Confluent's examples: each event id once in ten minutes."""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    events = builder.stream("inputTopic", value=str)
    events.deduplicate("10 minutes", key=lambda event: event).to("outputTopic")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        events = driver.create_input_topic("inputTopic")
        found = driver.create_output_topic("outputTopic")
        for minute, event in [(0, "a"), (1, "b"), (2, "a"), (15, "a")]:
            events.pipe_input("k", event, timestamp=minute * 60_000)
        assert found.read_values() == ["a", "b", "a"]


if __name__ == "__main__":
    main()
