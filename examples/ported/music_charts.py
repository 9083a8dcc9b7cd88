"""KafkaMusicExample of Confluent's examples: plays of songs, and the five most played songs of each genre."""

from __future__ import annotations

from typing import Any

import crossstream as cs

MOST_SECONDS = 30


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    songs = builder.table("song-feed", store="all-songs")
    long_enough = builder.stream("play-events").filter(lambda play: play["seconds"] >= MOST_SECONDS)
    by_song = long_enough.select_key("song").repartition(key=str)
    played = by_song.join(songs, lambda play, song: {**song, "id": play["song"]})
    counts = played.group_by_key(value=dict).aggregate(
        dict, lambda seen, song: {**song, "plays": seen.get("plays", 0) + 1}, value=dict
    )
    charts = counts.group_by("genre").aggregate(dict, add, remove, store="top-songs", value=dict)
    charts.map_values(top_five).to("top-five-songs-by-genre", value=list[str])
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
        songs = driver.create_input_topic("song-feed")
        plays = driver.create_input_topic("play-events")
        charts = driver.create_output_topic("top-five-songs-by-genre")
        songs.pipe_input("1", {"name": "Chemical Warfare", "genre": "Punk"})
        songs.pipe_input("2", {"name": "Le Bon Dieu", "genre": "Punk"})
        for song, seconds in [("1", 31), ("2", 60), ("2", 45), ("1", 10)]:
            plays.pipe_input("uk", {"song": song, "seconds": seconds})
        assert charts.read_key_values_to_map() == {"Punk": ["Le Bon Dieu", "Chemical Warfare"]}


if __name__ == "__main__":
    main()
