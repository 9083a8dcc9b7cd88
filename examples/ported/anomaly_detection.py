"""AnomalyDetectionLambdaExample of Confluent's examples: users who click more than twice within a minute."""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("UserClicks", value=str)
    counts = views.group_by(lambda user: user, key=str).windowed_by("1 minute").count()
    anomalies = counts.filter(lambda clicks: clicks >= 3)
    # A window that falls below three again comes out as a delete: only counts are reported.
    reports = anomalies.to_stream().filter(lambda clicks: clicks is not None)
    reports.map(lambda window, clicks: (window.key, clicks)).to("AnomalousUsers", key=str, value=int)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        clicks = driver.create_input_topic("UserClicks", auto_advance="1 second")
        users = driver.create_output_topic("AnomalousUsers")
        for user in ["alice", "alice", "bob", "alice", "bob", "bob", "bob"]:
            clicks.pipe_input(None, user)
        assert users.read_key_values() == [("alice", 3), ("bob", 3), ("bob", 4)]


if __name__ == "__main__":
    main()
