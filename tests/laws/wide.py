"""Foreign-key cases with many rows in a batch, so that order among keys, chunks and several runs matter."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.laws.strategies import EXTRACTOR, VALUES, Case, case


@st.composite
def wide_cases(draw: st.DrawFn, kinds: Sequence[str] = ("inner", "left")) -> Case:
    """Up to some hundred records; their values come from a seed, for drawing each would take too long."""
    rng = Random(draw(st.integers(0, 2**32)))
    keys, foreign_keys = draw(st.sampled_from([3, 10, 30])), draw(st.sampled_from([2, 5, 12, 30]))
    inputs, clock = [], 0
    for _ in range(draw(st.sampled_from([20, 60, 150]))):
        clock += rng.randint(0, 3)
        ts = max(0, clock - rng.choice([0, 0, 0, 5, 12]))
        inputs.append({**record(rng, keys, foreign_keys), "ts": ts})
    histories = st.sampled_from([None, None, 8, 1000])
    return case(
        "table-table-fk",
        draw(st.sampled_from(kinds)),
        inputs,
        fk_extractor=EXTRACTOR,
        left_versioned_ms=draw(histories),
        right_versioned_ms=draw(histories),
    )


def record(rng: Random, keys: int, foreign_keys: int) -> dict[str, Any]:
    if rng.random() < 0.4:
        value = None if rng.random() < 0.3 else rng.choice(VALUES)
        return {"side": "right", "key": str(rng.randrange(foreign_keys)), "value": value}
    named = "-" if rng.random() < 0.2 else str(rng.randrange(foreign_keys))
    row = None if rng.random() < 0.15 else f"{named};{rng.choice(VALUES)}"
    return {"side": "left", "key": f"k{rng.randrange(keys)}", "value": row}


def sent_again_while_partners_go(rows: int) -> Case:
    """Every left row comes a second time while its right row is deleted: all results must go."""
    lefts = [
        {"side": "left", "key": f"k{n}", "value": f"{n};x", "ts": ts} for ts in (1, 3) for n in range(rows)
    ]
    rights = [
        {"side": "right", "key": f"{n}", "value": value, "ts": ts}
        for ts, value in ((2, "y"), (4, None))
        for n in range(rows)
    ]
    inputs = [*lefts[:rows], *rights[:rows], *lefts[rows:], *rights[rows:]]
    return case("table-table-fk", "inner", inputs, fk_extractor=EXTRACTOR)
