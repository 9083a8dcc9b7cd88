"""Events of Nexmark are drawn as the reference draws them."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks.nexmark.events import FIRST_ID, START_MS, closers, events, reversed_bits
from benchmarks.nexmark.sending import chunks, lines, messages

EVENTS = 100_000
ALL = events(EVENTS)


def test_one_person_three_auctions_and_46_bids_of_fifty() -> None:
    assert [len(rows) for _, rows in ALL.tables()] == [EVENTS // 50, EVENTS * 3 // 50, EVENTS * 46 // 50]


@pytest.mark.parametrize("count", [0, 1, 3, 77, 50_001])
def test_fewer_events_are_the_first_ones(count: int) -> None:
    few = events(count)
    assert sum(len(rows) for _, rows in few.tables()) == count
    for name, rows in few.tables():
        assert rows.equals(getattr(ALL, name).head(len(rows)))


def test_another_seed_gives_other_bids() -> None:
    assert not events(100, seed=2).bid.equals(events(100).bid)


def test_times_rise_by_ten_events_a_millisecond() -> None:
    times = ALL.bid["dateTime"]
    assert times.is_sorted()
    assert times[0] == START_MS
    assert times[-1] == START_MS + (EVENTS - 1) // 10


def test_persons_and_auctions_are_numbered() -> None:
    for rows in (ALL.person, ALL.auction):
        assert rows["id"].to_list() == list(range(FIRST_ID, FIRST_ID + len(rows)))


def test_half_of_the_bids_go_to_a_hot_auction() -> None:
    hot = (ALL.bid["auction"] % 100 == 0).mean()
    assert hot == pytest.approx(0.5 + 0.5 / 100, abs=0.01)


def test_three_of_four_bidders_and_sellers_are_hot() -> None:
    assert (ALL.bid["bidder"] % 100 == 1).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.01)
    assert (ALL.auction["seller"] % 100 == 0).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.02)


def test_bids_are_for_auctions_in_flight() -> None:
    newest = FIRST_ID + pl.Series(range(len(ALL.bid))) // 46 * 3 + 2
    behind = newest - ALL.bid["auction"]
    assert behind.min() == -10  # auctions that are yet to come
    assert behind.max() <= 200


def test_a_hundred_auctions_are_open_on_average() -> None:
    length = (ALL.auction["expires"] - ALL.auction["dateTime"]).mean()
    assert length == pytest.approx(100 * 50 / 3 / 10, rel=0.05)


def test_rows_have_the_sizes_of_the_reference() -> None:
    numbers = {"person": 1, "auction": 6, "bid": 4}
    for (name, rows), size in zip(ALL.tables(), (200, 500, 100), strict=True):
        counted = [
            of for of, kind in rows.schema.items() if kind == pl.String and of not in ("channel", "url")
        ]
        text = sum(rows[of].str.len_bytes() for of in counted)
        assert (text + 8 * numbers[name]).mean() == pytest.approx(size, rel=0.05)


def test_half_of_the_bids_come_through_four_channels() -> None:
    hot = ALL.bid["channel"].is_in(["Google", "Facebook", "Baidu", "Apple"])
    assert hot.mean() == pytest.approx(0.5, abs=0.01)
    with_id = ALL.bid.filter(~hot)["url"].str.contains("&channel_id=")
    assert with_id.mean() == pytest.approx(0.9, abs=0.02)
    assert (
        ALL.bid["url"]
        .str.contains(r"^https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item")
        .all()
    )


def test_bits_are_turned_as_java_turns_them() -> None:
    assert [reversed_bits(number) for number in (0, 1, 2, 3)] == [0, 2**31, 2**30, 2**30]


def test_prices_are_spread_over_their_digits() -> None:
    digits = ALL.bid["price"].cast(pl.String).str.len_chars()
    assert (digits == 5).mean() == pytest.approx(1 / 6, abs=0.01)
    assert ALL.bid["price"].is_between(100, 100_000_000).all()


def test_closers_join_with_nothing() -> None:
    last = closers()
    for name, rows in last.tables():
        assert rows.schema == getattr(ALL, name).schema
    assert not last.bid["auction"].is_in(last.auction["id"]).any()
    assert not last.auction["seller"].is_in(last.person["id"]).any()


def test_records_keep_their_order() -> None:
    sent = {
        name: pl.concat([rows for table, rows in chunks(ALL) if table == name]) for name, _ in ALL.tables()
    }
    assert all(sent[name].equals(rows) for name, rows in ALL.tables())


def test_a_record_is_json_with_its_id_and_time() -> None:
    bid = ALL.bid.head(1)
    key, value, time = messages("bid", bid)[0]
    assert (key, time) == (str(bid["auction"][0]).encode(), START_MS)
    assert value == lines(bid)[0].encode()
