"""A join of two streams in a window: each view of a page with the click that follows within 10 seconds.

python examples/stream_stream_join.py
"""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("views", cs.Consumed(key=TEXT, value=TEXT))
    clicks = builder.stream("clicks", cs.Consumed(key=TEXT, value=TEXT))
    views.left_join(
        clicks,
        lambda view, click: {"view": view, "click": click},
        cs.JoinWindows(before=0, after="10 seconds", grace="2 seconds"),
    ).to("visits", cs.Produced(value=JSON))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        views = driver.create_input_topic("views", TEXT, TEXT)
        clicks = driver.create_input_topic("clicks", TEXT, TEXT)
        visits = driver.create_output_topic("visits", TEXT, JSON)

        views.pipe_input("ada", "home", timestamp=1_000)
        views.pipe_input("eve", "shop", timestamp=2_000)
        clicks.pipe_input("ada", "buy", timestamp=4_000)
        assert visits.read_key_values() == [("ada", {"view": "home", "click": "buy"})]

        # Eve's window ends at 12 s. With the grace period her view comes out alone once time is past 14 s.
        views.pipe_input("joe", "home", timestamp=14_001)
        assert visits.read_key_values() == [("eve", {"view": "shop", "click": None})]
    print("one view with a click, one without")


if __name__ == "__main__":
    main()
