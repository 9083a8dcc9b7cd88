"""PageViewRegionLambdaExample of Confluent's examples: page views per region in hopping windows of five minutes."""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    users = builder.table("UserProfiles").map_values(lambda user: user["region"])
    regions = builder.stream("PageViews").select_key("user").repartition(key=str).left_join(users, region_of)
    windows = cs.TimeWindows(size="5 minutes", advance="1 minute")
    regions.group_by(lambda region: region, key=str).windowed_by(windows).count().to("PageViewsByRegion")
    return builder.build()


def region_of(view: dict[str, str], region: str | None) -> str:
    return region or "unknown"


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        users = driver.create_input_topic("UserProfiles")
        views = driver.create_input_topic("PageViews")
        counts = driver.create_output_topic("PageViewsByRegion")
        users.pipe_input("alice", {"region": "asia"})
        for minute, user in enumerate(["alice", "bob", "alice"]):
            views.pipe_input(None, {"user": user, "page": "index.html"}, timestamp=minute * 60_000)
        found = counts.read_key_values_to_map()
        assert found[cs.Windowed("asia", 0, 300_000)] == 2
        assert found[cs.Windowed("asia", 120_000, 420_000)] == 1
        assert found[cs.Windowed("unknown", 60_000, 360_000)] == 1


if __name__ == "__main__":
    main()
