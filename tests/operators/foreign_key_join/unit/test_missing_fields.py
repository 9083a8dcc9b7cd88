"""A text names a field that no value has: on undeclared values one warning says so, with the fields that are there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream.task.batch import Report, pack_report, unpack_report
from crossstream.task.missing_fields import LookUp

ROWS = 1_200
PRODUCT = {"name": "scarf", "merchant": "m1", "price": 7}


class Sides:
    def __init__(self) -> None:
        self.builder = cs.StreamsBuilder()
        self.products = self.builder.table("products")

    def stream(self) -> cs.KStream:
        return self.products.to_stream()

    def merchants(self) -> cs.KTable:
        return self.builder.table("merchants")

    def places(self) -> cs.GlobalKTable:
        return self.builder.global_table("merchants")


NAMED: dict[str, tuple[Callable[[Sides, str], object], str]] = {
    "join": (lambda s, name: s.products.join(s.merchants(), foreign_key=name), "foreign_key"),
    "left_join": (lambda s, name: s.products.left_join(s.merchants(), foreign_key=name), "foreign_key"),
    "join_many": (
        lambda s, name: s.products.join_many({"shop": (s.merchants(), name)}),
        "foreign key of 'shop'",
    ),
    "a global table": (lambda s, name: s.products.join(s.places(), foreign_key=name), "foreign_key"),
    "a stream": (lambda s, name: s.stream().join(s.places(), key_selector=name), "key_selector"),
    "select_key": (lambda s, name: s.stream().select_key(name).to("out", key=str), "mapper"),
    "to_stream": (lambda s, name: s.products.to_stream(name).to("out", key=str), "mapper"),
    "group_by": (lambda s, name: s.stream().group_by(name).count(store="counts"), "selector"),
    "group_by of a table": (lambda s, name: s.products.group_by(name).count(store="counts"), "mapper"),
    "deduplicate": (lambda s, name: s.stream().deduplicate("1 hour", key=name).to("out"), "key"),
}


def run(case: str, name: str, rows: list[Any], every: int = 500) -> tuple[str, ...]:
    sides = Sides()
    NAMED[case][0](sides, name)
    with cs.TopologyTestDriver(sides.builder.build(), partitions=2, commit_every=every) as driver:
        products = driver.create_input_topic("products")
        products.pipe_records([(f"p{number}", row) for number, row in enumerate(rows)])
        driver.commit()
        warnings: tuple[str, ...] = driver.metrics()["warnings"]
        return warnings


@pytest.mark.parametrize("case", NAMED)
def test_a_field_that_no_row_has(case: str, caplog: pytest.LogCaptureFixture) -> None:
    [text] = run(case, "merchnt", [PRODUCT] * ROWS + [None])
    assert NAMED[case][1] in text
    assert "names the field 'merchnt', and none of 1," in text
    assert text.endswith("rows has it: did you mean 'merchant'? they have 'name', 'merchant', 'price'")
    assert [(one.name, one.getMessage()) for one in caplog.records if one.levelno >= logging.WARNING] == [
        ("crossstream.fields", text)
    ]


@pytest.mark.parametrize("case", NAMED)
def test_a_field_that_rows_have_also_if_it_is_none(case: str) -> None:
    assert run(case, "merchant", [{**PRODUCT, "merchant": None}] * ROWS) == ()


def test_one_row_that_has_it_is_enough() -> None:
    rare = [{"name": "x"}] * ROWS
    assert run("join", "merchant", [PRODUCT, *rare]) == ()
    assert run("join", "merchant", [*rare[:700], PRODUCT, *rare], every=10_000) == ()


def test_what_was_said_is_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    assert run("join", "merchant", [*[{"name": "x"}] * 2 * ROWS, PRODUCT]) == ()
    assert len(caplog.records) == 1


def test_few_rows_say_nothing() -> None:
    assert run("join", "merchnt", [PRODUCT] * 1_000) == ()


def test_objects_have_fields_too() -> None:
    """A class without a column form: its fields are checked where the join is written."""
    builder = cs.StreamsBuilder()
    table = builder.table("texts", value=str)
    with pytest.raises(cs.TopologyError) as caught:
        table.join(builder.table("merchants"), lambda left, right: left, foreign_key="merchant")
    assert caught.value.code == "CS-114"
    assert "'merchant'" in caught.value.what


def test_reports_of_tasks_add_up() -> None:
    report = Report()
    for found, missing in ((0, 3), (1, 0), (0, 2)):
        task = Report()
        task.note_field("join: foreign_key", LookUp("m", found, missing, ("a",) * missing))
        report.add(unpack_report(pack_report(task)))
    assert report.looked_up == {"join: foreign_key": LookUp("m", 1, 5, ("a", "a", "a"))}
