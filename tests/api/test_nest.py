"""`nest`: what it takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import TopologyError

PARENT = serdes.json({"name": pl.String})
CHILD = serdes.json({"parent": pl.Int64, "note": pl.String})


def tables(
    child: Any = CHILD, parent: Any = PARENT, builder: cs.StreamsBuilder | None = None
) -> tuple[Any, Any]:
    builder = builder or cs.StreamsBuilder()
    parents = builder.table("parents", cs.Consumed(key=serdes.int64(), value=parent))
    return parents, builder.table("children", cs.Consumed(key=serdes.string(), value=child))


@pytest.mark.parametrize("foreign_key", ["parent", pl.col("parent").cast(pl.Int64) * 1])
def test_the_foreign_key_may_be_a_narrower_number_or_an_expression(foreign_key: Any) -> None:
    builder = cs.StreamsBuilder()
    parents, children = tables(serdes.json({"parent": pl.Int32, "note": pl.String}), builder=builder)
    parents.nest(children, foreign_key, into="notes", store="nested")
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("parents").pipe_input(2, {"name": "two"})
        driver.create_input_topic("children").pipe_input("x", {"parent": 2, "note": "n"})
        assert driver.get_key_value_store("nested").get(2) == {
            "name": "two",
            "notes": [{"parent": 2, "note": "n"}],
        }


def test_a_name_names_all_its_parts() -> None:
    builder = cs.StreamsBuilder()
    parents, children = tables(builder=builder)
    parents.nest(children, "parent", into="notes", named=cs.Named("with-notes"))
    names = {node.name for node in builder.build()}
    assert {"with-notes", "with-notes-children", "with-notes-by-parent", "with-notes-lists"} <= names


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("CS-104", {"foreign_key": lambda child: child["parent"], "into": "notes"}),
        ("CS-104", {"into": "notes"}),
        ("CS-134", {"foreign_key": "note", "into": "notes"}),
        ("CS-136", {"foreign_key": "parent", "into": "name"}),
        ("CS-136", {"foreign_key": "parent"}),
        ("CS-114", {"foreign_key": "owner", "into": "notes"}),
    ],
)
def test_what_it_refuses(code: str, arguments: dict[str, Any]) -> None:
    parents, children = tables()
    with pytest.raises(TopologyError) as caught:
        parents.nest(children, **arguments)
    assert caught.value.code == code
    assert "test_nest.py" in str(caught.value)


def test_rows_without_declared_fields_are_refused() -> None:
    for code, kinds in (("CS-113", (serdes.json(),)), ("CS-113", (CHILD, serdes.string()))):
        parents, children = tables(*kinds)
        with pytest.raises(TopologyError) as caught:
            parents.nest(children, "parent", into="notes")
        assert caught.value.code == code


def test_only_a_table_of_this_builder_is_nested() -> None:
    parents, children = tables()
    for other in (children.to_stream(), tables()[1], "children"):
        with pytest.raises(TopologyError) as caught:
            parents.nest(other, "parent", into="notes")
        assert caught.value.code in ("CS-135", "CS-121")
