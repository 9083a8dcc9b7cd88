"""UserRegionLambdaExample of Confluent's examples: regions with more than one user, from a table of users."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, COUNT = serdes.string(), serdes.int64()


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    users = builder.table("UserRegions", cs.Consumed(key=TEXT, value=TEXT))
    regions = users.group_by(lambda user, region: (region, region), cs.Grouped(key=TEXT, value=TEXT))
    large = regions.count().filter(lambda count: count > 1)
    large.to_stream().to("LargeRegions", cs.Produced(key=TEXT, value=COUNT))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        users = driver.create_input_topic("UserRegions", TEXT, TEXT)
        regions = driver.create_output_topic("LargeRegions", TEXT, COUNT)
        for user, region in [("alice", "asia"), ("bob", "europe"), ("cleo", "asia"), ("cleo", "europe")]:
            users.pipe_input(user, region)
        assert regions.read_key_values() == [("asia", 2), ("asia", None), ("europe", 2)]


if __name__ == "__main__":
    main()
