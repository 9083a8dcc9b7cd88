"""SessionWindowsExample of Confluent's examples: play events of a user that are less than half an hour apart."""

from __future__ import annotations

import crossstream as cs

MINUTE = 60_000


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    plays = builder.stream("play-events").group_by_key()
    sessions = plays.windowed_by(cs.SessionWindows(gap="30 minutes", grace="1 day"))
    counts = sessions.count(store="play-events-per-session").to_stream()
    named = counts.map(lambda session, plays: (f"{session.key}@{session.start}->{session.end}", plays))
    named.to("play-events-per-session", key=str, value=int)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        plays = driver.create_input_topic("play-events")
        counts = driver.create_output_topic("play-events-per-session")
        plays.pipe_input("jo", {"song": 5}, timestamp=0)
        plays.pipe_input("jo", {"song": 6}, timestamp=40 * MINUTE)  # another session
        plays.pipe_input("jo", {"song": 7}, timestamp=20 * MINUTE)  # joins the two
        assert counts.read_key_values() == [
            ("jo@0->0", 1),
            (f"jo@{40 * MINUTE}->{40 * MINUTE}", 1),
            ("jo@0->0", None),
            (f"jo@{40 * MINUTE}->{40 * MINUTE}", None),
            (f"jo@0->{40 * MINUTE}", 3),
        ]


if __name__ == "__main__":
    main()
