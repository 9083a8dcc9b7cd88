"""What an expression gave stays that: whoever looks at its objects meanwhile changes nothing for others."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.algebra.values import Values

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()


@dataclass
class Item:
    price: Decimal
    code: UUID
    n: int


ITEM = serdes.json(Item)
GIVEN = Item(Decimal("19.50"), UUID(int=7), 2)


@pytest.mark.parametrize(
    ("expression", "serde", "then"),
    [
        (pl.col("price"), JSON, None),
        (pl.col("code"), serdes.uuid(), None),
        (pl.struct("price", "code", "n"), ITEM, None),
        (pl.col("n").cast(pl.Int8), JSON, pl.col("value") * 100),
    ],
    ids=["decimal", "uuid", "item", "number"],
)
def test_another_branch_that_looks_at_objects_changes_nothing(
    expression: pl.Expr, serde: Any, then: pl.Expr | None
) -> None:
    def written(look: bool) -> list[bytes]:
        builder = cs.StreamsBuilder()
        mapped = builder.stream("in", cs.Consumed(key=TEXT, value=ITEM)).map_values(expression)
        if look:
            mapped.foreach(lambda value: None)
        last = mapped if then is None else mapped.map_values(then)
        last.to("out", cs.Produced(value=serde))
        with cs.TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", TEXT, ITEM).pipe_input("k", GIVEN)
            return driver.create_output_topic("out", TEXT, BYTES).read_values()

    assert written(True) == written(False) != []


def test_bytes_are_made_of_the_column_also_after_its_objects_were_asked_for() -> None:
    series = pl.Series([Decimal("19.5"), None], dtype=pl.Decimal(38, 18))
    values = Values(series=series)
    view, part = values.take(np.array([1, 0])), values.slice(0, 1)
    assert values.objects() == [Decimal("19.5"), None]
    assert all(one.expressed() for one in (values, view, part, values.slice(1, 2), view.slice(0, 1)))
    assert values.wire(JSON).to_pylist() == [b'"19.5"', None]
    assert part.wire(JSON).to_pylist() == [b'"19.5"']
    made = Values(objects=[Decimal("19.500"), None])
    assert made.series().to_list() == made.objects()
    assert not made.expressed()
    assert made.wire(JSON).to_pylist() == [b'"19.500"', None]
