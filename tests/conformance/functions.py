"""Joiners, foreign-key extractors and key selectors as users write them: callables or expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import polars as pl

from tests.reference.functions import joiner, selector

Style = Literal["callables", "expressions"]
Spec = Mapping[str, Any]


def user_joiner(spec: Spec, style: Style) -> Callable[..., Any] | pl.Expr:
    """Called with (left, right), or with the key first where the result shows it."""
    if style == "expressions":
        return joiner_expression(spec)
    join = joiner(spec)
    if spec.get("op") == "key-sum":
        return lambda key, left, right: join(key, left, right)
    return lambda left, right: join(None, left, right)


def user_extractor(spec: Spec, style: Style) -> Callable[..., Any] | pl.Expr:
    """Called with the left value, or with the key first where it is the key."""
    if style == "expressions":
        return selector_expression(spec)
    extract = selector(spec)
    if spec["kind"] == "key":
        return lambda key, value: extract(key, value)
    return lambda value: extract(None, value)


def user_selector(spec: Spec, style: Style) -> Callable[..., Any] | pl.Expr:
    """Called with key and value of the stream record."""
    if style == "expressions":
        return selector_expression(spec)
    select = selector(spec)
    return lambda key, value: select(key, value)


def joiner_expression(spec: Spec) -> pl.Expr:
    if "op" in spec:
        total = pl.col("left").fill_null(0) + pl.col("right").fill_null(0)
        shown = pl.col("key").cast(pl.String)
        return total if spec["op"] == "sum" else pl.concat_str(shown, pl.lit(":"), total.cast(pl.String))
    parts = [part for part in re.split(r"(\{left\}|\{right\})", spec["template"]) if part]
    text = pl.concat_str(*[_part(part, spec.get("missing", "null")) for part in parts])
    if "null_if" not in spec:
        return text
    return pl.when(~text.str.contains(spec["null_if"], literal=True)).then(text)


def _part(part: str, missing: str) -> pl.Expr:
    if part not in ("{left}", "{right}"):
        return pl.lit(part)
    return pl.col(part.strip("{}")).cast(pl.String).fill_null(missing)


def selector_expression(spec: Spec) -> pl.Expr:
    value = pl.col("value")
    if spec["kind"] == "constant-null":
        return pl.lit(None, dtype=pl.String)
    if spec["kind"] == "key":
        return pl.col("key")
    if spec["kind"] == "value":
        prefix = spec.get("null_prefix")
        return value if prefix is None else pl.when(~value.str.starts_with(prefix)).then(value)
    if spec["kind"] == "split":
        part = value.str.split(spec["sep"]).list.get(spec["index"], null_on_oob=True)
        if "null_if" in spec:
            part = pl.when(part != spec["null_if"]).then(part)
        return part.cast(pl.Int64) if spec.get("as") == "int" else part
    raise ValueError(f"no expression for a selector of kind {spec['kind']}")


def expressible(case: Mapping[str, Any]) -> bool:
    """Whether a case's functions can be written as expressions: single joins of text and whole numbers."""
    params = case["params"]
    kinds = {params[name]["kind"] for name in ("fk_extractor", "key_mapper") if name in params}
    return "joins" not in case and kinds <= {"constant-null", "key", "value", "split"} and _plain_values(case)


def _plain_values(case: Mapping[str, Any]) -> bool:
    return all(isinstance(item["value"], str | int | None) for item in case["inputs"])
