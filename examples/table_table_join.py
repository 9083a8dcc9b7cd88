"""A join of two tables by their common key: a user's profile with the user's settings.

python examples/table_table_join.py
"""

from __future__ import annotations

from typing import Any

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    profiles = builder.table("profiles")
    settings = builder.table("settings")
    users = profiles.left_join(settings, merged, store="users")
    users.to("users")
    return builder.build()


def merged(profile: dict[str, Any], settings: dict[str, Any] | None) -> dict[str, Any]:
    """A left join passes None for a row that is missing on the right."""
    return {**profile, "language": settings["language"] if settings else "en"}


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        profiles = driver.create_input_topic("profiles", str, dict)
        settings = driver.create_input_topic("settings", str, dict)
        users = driver.create_output_topic("users", str, dict)

        profiles.pipe_input("u1", {"name": "Ada"})
        settings.pipe_input("u1", {"language": "fr"})
        settings.pipe_input("u1", None)
        profiles.pipe_input("u1", None)
        assert users.read_key_values() == [
            ("u1", {"name": "Ada", "language": "en"}),
            ("u1", {"name": "Ada", "language": "fr"}),
            ("u1", {"name": "Ada", "language": "en"}),  # the settings were deleted
            ("u1", None),  # the profile was deleted
        ]
    print("four changes in, four changes out")


if __name__ == "__main__":
    main()
