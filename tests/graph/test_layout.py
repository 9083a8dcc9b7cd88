"""The drawing of a topology: boxes do not overlap, arrows go down, and everything is there, also of 100 nodes."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.graph.layout import HEIGHT, WIDTH, Drawing, _rising, drawing_of
from crossstream.graph.picture import picture

TEXT = serdes.string()
KEPT = cs.Consumed(key=TEXT, value=TEXT)


@st.composite
def topologies(draw: st.DrawFn) -> cs.Topology:
    """Streams that are changed, merged and written, some to topics that are read again."""
    builder = cs.StreamsBuilder()
    streams = [builder.stream(f"in-{n}", KEPT) for n in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 25))):
        one = draw(st.sampled_from(streams))
        if draw(st.booleans()):
            streams.append(one.filter(lambda value: True))
        else:
            streams.append(one.merge(draw(st.sampled_from(streams))))
    for n in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(streams)).to(f"in-{n}" if draw(st.booleans()) and n else f"out-{n}")
    return builder.build()


def check(topology: cs.Topology) -> Drawing:
    drawn = drawing_of(topology)
    boxes, arrows = picture(topology)
    assert sorted(shape.name for shape in drawn.shapes) == sorted(box.title for box in boxes)
    assert len(drawn.lines) == len(arrows)
    by_row: dict[int, list[int]] = {}
    for shape in drawn.shapes:
        assert 0 <= shape.x <= drawn.width - WIDTH
        assert 0 <= shape.y <= drawn.height - HEIGHT
        by_row.setdefault(shape.y, []).append(shape.x)
    for xs in by_row.values():
        xs.sort()
        assert all(right - left > WIDTH for left, right in itertools.pairwise(xs))
    at = {box.id: shape for box, shape in zip(boxes, drawn.shapes, strict=True)}
    read = {arrow.tail for arrow in arrows}
    for arrow in arrows:
        if not (at[arrow.head].look == "topic" and arrow.head in read):
            assert at[arrow.head].y > at[arrow.tail].y
    return drawn


@given(topologies())
def test_boxes_do_not_overlap_and_arrows_go_down(topology: cs.Topology) -> None:
    check(topology)


def chains(count: int) -> cs.Topology:
    builder = cs.StreamsBuilder()
    customers = builder.table("customers", KEPT)
    for n in range(count):
        orders = builder.table(f"orders-{n}", KEPT, cs.Materialized(store=f"orders-{n}"))
        joined = orders.join(customers, lambda one, other: one, foreign_key=lambda one: one)
        joined.to_stream().filter(lambda value: True).map_values(lambda value: value).to(
            f"out-{n}", cs.Produced(key=TEXT, value=TEXT)
        )
    return builder.build()


def test_a_hundred_nodes_are_laid_out_fast_and_readable() -> None:
    topology = chains(16)
    started = time.perf_counter()
    drawn = check(topology)
    assert time.perf_counter() - started < 2
    assert len(drawn.shapes) >= 98
    assert drawn.width <= 17 * (WIDTH + 40)
    assert all(len(shape.title) <= 28 for shape in drawn.shapes)


def test_sinks_and_stores_are_named() -> None:
    named = {shape.name: shape for shape in drawing_of(chains(1)).shapes}
    assert named["orders-0"].stores == ("orders-0",) or named["orders-0"].look == "topic"
    assert any("orders-0" in shape.stores for shape in drawing_of(chains(1)).shapes)
    assert len(named["out-0"].sinks) == 1


@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_rising_never_falls_and_keeps_what_rises(wanted: list[float]) -> None:
    found = _rising(wanted)
    assert len(found) == len(wanted)
    assert all(b - a >= -1e-3 for a, b in itertools.pairwise(found))
    assert sum(found) == pytest.approx(sum(wanted), abs=1e-2)
    assert _rising(sorted(wanted)) == pytest.approx(sorted(wanted))
