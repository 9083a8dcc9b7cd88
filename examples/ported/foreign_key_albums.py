"""The tutorial "foreign-key joins of tables": purchases of tracks with the album that each track is on."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

NUMBER, JSON = serdes.int64(), serdes.json()


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    albums = builder.table("albums", cs.Consumed(key=NUMBER, value=JSON))
    purchases = builder.table("track-purchases", cs.Consumed(key=NUMBER, value=JSON))
    music = purchases.join(
        albums,
        lambda purchase, album: {**purchase, "genre": album["genre"], "artist": album["artist"]},
        foreign_key=lambda purchase: purchase["album_id"],
    )
    music.to_stream().to("music-interest", cs.Produced(key=NUMBER, value=JSON))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        albums = driver.create_input_topic("albums", NUMBER, JSON)
        purchases = driver.create_input_topic("track-purchases", NUMBER, JSON)
        music = driver.create_output_topic("music-interest", NUMBER, JSON)
        albums.pipe_input(5, {"title": "Physical Graffiti", "genre": "Rock", "artist": "Led Zeppelin"})
        purchases.pipe_input(100, {"song": "Houses Of The Holy", "album_id": 5})
        assert music.read_key_values() == [
            (100, {"song": "Houses Of The Holy", "album_id": 5, "genre": "Rock", "artist": "Led Zeppelin"})
        ]


if __name__ == "__main__":
    main()
