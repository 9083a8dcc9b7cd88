"""PageViewRegionLambdaExample of Confluent's examples: page views per region in hopping windows of five minutes."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, JSON, COUNT = serdes.string(), serdes.json(), serdes.int64()
WINDOWED = serdes.windowed(TEXT, "5 minutes")


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("PageViews", cs.Consumed(key=TEXT, value=JSON))
    users = builder.table("UserProfiles", cs.Consumed(key=TEXT, value=JSON))
    by_user = views.select_key(lambda view: view["user"]).repartition(cs.Repartitioned(key=TEXT))
    regions = by_user.left_join(users.map_values(lambda user: user["region"]), region_of)
    windows = cs.TimeWindows(size="5 minutes", advance="1 minute")
    counts = regions.group_by(lambda region: region, cs.Grouped(key=TEXT)).windowed_by(windows).count()
    counts.to_stream().to("PageViewsByRegion", cs.Produced(key=WINDOWED, value=COUNT))
    return builder.build()


def region_of(view: dict[str, str], region: str | None) -> str:
    return region or "unknown"


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        users = driver.create_input_topic("UserProfiles", TEXT, JSON)
        views = driver.create_input_topic("PageViews", TEXT, JSON)
        counts = driver.create_output_topic("PageViewsByRegion", WINDOWED, COUNT)
        users.pipe_input("alice", {"region": "asia"})
        for minute, user in enumerate(["alice", "bob", "alice"]):
            views.pipe_input(None, {"user": user, "page": "index.html"}, timestamp=minute * 60_000)
        found = counts.read_key_values_to_map()
        assert found[cs.Windowed("asia", 0, 300_000)] == 2
        assert found[cs.Windowed("asia", 120_000, 420_000)] == 1
        assert found[cs.Windowed("unknown", 60_000, 360_000)] == 1


if __name__ == "__main__":
    main()
