"""A join of two streams in a window: each view of a page with the click that follows within 10 seconds.

python examples/stream_stream_join.py
"""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("views", value=str)
    clicks = builder.stream("clicks", value=str)
    views.left_join(
        clicks,
        lambda view, click: {"view": view, "click": click},
        cs.JoinWindows(before=0, after="10 seconds", grace="2 seconds"),
    ).to("visits", value=dict)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        views = driver.create_input_topic("views", str, str)
        clicks = driver.create_input_topic("clicks", str, str)
        visits = driver.create_output_topic("visits", str, dict)

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
