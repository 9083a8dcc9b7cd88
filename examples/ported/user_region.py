"""UserRegionLambdaExample of Confluent's examples: regions with more than one user, from a table of users."""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    users = builder.table("UserRegions", value=str)
    regions = users.group_by(lambda user, region: (region, region), key=str, value=str)
    regions.count().filter(lambda count: count > 1).to("LargeRegions")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        users = driver.create_input_topic("UserRegions")
        regions = driver.create_output_topic("LargeRegions")
        for user, region in [("alice", "asia"), ("bob", "europe"), ("cleo", "asia"), ("cleo", "europe")]:
            users.pipe_input(user, region)
        assert regions.read_key_values() == [("asia", 2), ("asia", None), ("europe", 2)]


if __name__ == "__main__":
    main()
