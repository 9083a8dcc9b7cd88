"""WordCountDemo of Kafka Streams: counts the words of lines of text."""

from __future__ import annotations

import re

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    lines = builder.stream("streams-plaintext-input", value=str)
    words = lines.flat_map_values(lambda line: re.findall(r"\w+", line.lower()))
    words.group_by(lambda word: word, key=str).count().to("streams-wordcount-output")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        lines = driver.create_input_topic("streams-plaintext-input")
        counts = driver.create_output_topic("streams-wordcount-output")
        lines.pipe_input(None, "all streams lead to kafka")
        lines.pipe_input(None, "hello kafka streams")
        assert counts.read_key_values_to_map() == {
            word: 2 if word in ("streams", "kafka") else 1
            for word in ("all", "streams", "lead", "to", "kafka", "hello")
        }


if __name__ == "__main__":
    main()
