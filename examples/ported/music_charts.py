"""KafkaMusicExample of Confluent's examples: plays of songs, and the five most played songs of each genre."""

from __future__ import annotations

from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
MOST_SECONDS = 30


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    plays = builder.stream("play-events", cs.Consumed(key=TEXT, value=JSON))
    songs = builder.table("song-feed", cs.Consumed(key=TEXT, value=JSON), cs.Materialized(store="all-songs"))
    long_enough = plays.filter(lambda play: play["seconds"] >= MOST_SECONDS)
    by_song = long_enough.select_key(lambda play: play["song"]).repartition(cs.Repartitioned(key=TEXT))
    played = by_song.join(songs, lambda play, song: {**song, "id": play["song"]})
    counts = played.group_by_key(cs.Grouped(value=JSON)).aggregate(
        dict,
        lambda seen, song: {**song, "plays": seen.get("plays", 0) + 1},
        materialized=cs.Materialized(value=JSON),
    )
    by_genre = counts.group_by(lambda song, count: (count["genre"], count), cs.Grouped(key=TEXT, value=JSON))
    charts = by_genre.aggregate(
        dict, add, remove, materialized=cs.Materialized(store="top-songs", value=JSON)
    )
    charts.to_stream().map_values(top_five).to("top-five-songs-by-genre", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def add(songs: dict[str, Any], song: dict[str, Any]) -> dict[str, Any]:
    return {**songs, song["id"]: song}


def remove(songs: dict[str, Any], song: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in songs.items() if name != song["id"]}


def top_five(songs: dict[str, Any]) -> list[str]:
    ranked = sorted(songs.values(), key=lambda song: (-song["plays"], song["name"]))
    return [song["name"] for song in ranked[:5]]


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        songs = driver.create_input_topic("song-feed", TEXT, JSON)
        plays = driver.create_input_topic("play-events", TEXT, JSON)
        charts = driver.create_output_topic("top-five-songs-by-genre", TEXT, JSON)
        songs.pipe_input("1", {"name": "Chemical Warfare", "genre": "Punk"})
        songs.pipe_input("2", {"name": "Le Bon Dieu", "genre": "Punk"})
        for song, seconds in [("1", 31), ("2", 60), ("2", 45), ("1", 10)]:
            plays.pipe_input("uk", {"song": song, "seconds": seconds})
        assert charts.read_key_values_to_map() == {"Punk": ["Le Bon Dieu", "Chemical Warfare"]}


if __name__ == "__main__":
    main()
