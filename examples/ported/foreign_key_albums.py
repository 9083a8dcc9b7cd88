"""The tutorial "foreign-key joins of tables": purchases of tracks with the album that each track is on."""

from __future__ import annotations

import crossstream as cs


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    albums = builder.table("albums", key=int)
    purchases = builder.table("track-purchases", key=int)
    purchases.join(albums, foreign_key="album_id").to("music-interest")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        albums = driver.create_input_topic("albums")
        purchases = driver.create_input_topic("track-purchases")
        music = driver.create_output_topic("music-interest")
        albums.pipe_input(5, {"title": "Physical Graffiti", "genre": "Rock", "artist": "Led Zeppelin"})
        purchases.pipe_input(100, {"song": "Houses Of The Holy", "album_id": 5})
        (found,) = music.read_values()
        assert (found["song"], found["genre"], found["artist"]) == (
            "Houses Of The Holy",
            "Rock",
            "Led Zeppelin",
        )


if __name__ == "__main__":
    main()
