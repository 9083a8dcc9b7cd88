"""Calls that the DSL refuses: `refusals.txt` has each with its code, message and next step.

``UPDATE_GOLDEN=1`` writes the answers; read them again. The answer to a mistake that a newcomer makes, with the place
it names and the time it takes, is in `mistakes.txt`.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.api.frame_double import changes, frame, static

TEXT = Path(__file__).parent / "refusals.txt"
CALL = ">>> "


@dataclass
class Order:
    customer_id: str | None
    price: float


@dataclass
class Customer:
    name: str


class Own:
    """A serde of the user."""

    name, dtype = "own", None

    def serialize(self, value: Any) -> bytes:
        return b""

    def deserialize(self, data: bytes) -> Any:
        return None


def names() -> dict[str, Any]:
    """What the calls use: a builder, and streams and tables of it."""
    builder = cs.StreamsBuilder()
    return {
        "a": builder.table("a", value={"id": pl.Int64, "a": pl.String}),
        "b": builder.table("b", value={"id": pl.Int64, "b": pl.String}),
        "clash": builder.table("clash", value={"id": pl.Int64, "my_id": pl.Int64}),
        "cs": cs,
        "pl": pl,
        "re": re,
        "serdes": serdes,
        "Order": Order,
        "Own": Own,
        "builder": builder,
        "piped": piped,
        "of_some": of_some,
        "orders": builder.stream("orders"),
        "typed": builder.stream("typed", value=Order),
        "rows": builder.table("rows", value=str),
        "texts": builder.stream("texts", value=str),
        "customers": builder.table("customers", value=Customer),
        "changes": changes,
        "frame": frame,
        "static": static,
        "number": builder.table("number", value=int),
        "text": builder.table("text", value={"id": pl.String}),
    }


def of_some(rows: pl.Series) -> pl.Series:
    """Fails for no rows, so that nothing is known of it where it is written."""
    assert len(rows)
    return rows


def piped(builder: cs.StreamsBuilder, *values: str, topic: str = "texts") -> None:
    """Runs the topology on these values of one key, in one batch, from partition 1 of the topic."""
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=len(values)) as driver:
        for value in values:
            driver.create_input_topic(topic, str, str).pipe_input("a", value, partition=1)


def pinned() -> dict[str, tuple[int, str]]:
    """The calls of the table: the number of their line, and the answer below it."""
    lines = ["", *TEXT.read_text(encoding="utf-8").splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(CALL)]
    return {
        lines[start].removeprefix(CALL): (
            start,
            "\n".join(line for line in lines[start + 1 : end] if line.startswith(("[", " "))),
        )
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    }


def write(call: str, answer: str) -> None:
    start, known = pinned()[call]
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    lines[start : start + len(known.splitlines())] = answer.splitlines()
    TEXT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def answer(call: str, line: int) -> str:
    """The code, message and next step. Of a record's error also its class and what it says of the record.

    The error names this line of the table.
    """
    tree = ast.increment_lineno(ast.parse(call, mode="eval"), line - 1)
    with pytest.raises(cs.CrossStreamError) as caught:
        eval(compile(tree, str(TEXT), "eval"), names())
    error = caught.value
    assert error.next
    where = {name: value for name, value in error.where.items() if name != "line"}
    assert error.where["line"] == f"{TEXT}:{line}"
    of_record = "" if isinstance(error, cs.TopologyError) else f"  where: {type(error).__name__}, {where}\n"
    text = f"[{error.code}] {error.what}\n{of_record}  next: {error.next}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


@pytest.mark.parametrize("call", pinned())
def test_a_call_is_refused(call: str) -> None:
    line, known = pinned()[call]
    found = answer(call, line)
    if os.environ.get("UPDATE_GOLDEN"):
        write(call, found)
    else:
        assert found == known
