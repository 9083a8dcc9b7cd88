"""AnomalyDetectionLambdaExample of Confluent's examples: users who click more than twice within a minute."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, COUNT = serdes.string(), serdes.int64()
WINDOWED = serdes.windowed(TEXT, "1 minute")


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("UserClicks", cs.Consumed(key=TEXT, value=TEXT))
    by_user = views.group_by(lambda user: user, cs.Grouped(key=TEXT))
    counts = by_user.windowed_by(cs.TimeWindows(size="1 minute")).count()
    anomalies = counts.filter(lambda clicks: clicks >= 3)
    # A window that falls below three again comes out as a delete: only counts are reported.
    reports = anomalies.to_stream().filter(lambda clicks: clicks is not None)
    named = reports.map(lambda window, clicks: (window.key, clicks))
    named.to("AnomalousUsers", cs.Produced(key=TEXT, value=COUNT))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        clicks = driver.create_input_topic("UserClicks", TEXT, TEXT, auto_advance="1 second")
        users = driver.create_output_topic("AnomalousUsers", TEXT, COUNT)
        for user in ["alice", "alice", "bob", "alice", "bob", "bob", "bob"]:
            clicks.pipe_input(None, user)
        assert users.read_key_values() == [("alice", 3), ("bob", 3), ("bob", 4)]


if __name__ == "__main__":
    main()
