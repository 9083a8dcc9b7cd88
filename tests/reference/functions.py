"""Joiners, foreign-key extractors and key selectors, from their description in a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Joiner = Callable[[Any, Any, Any], Any]  # (key, left, right)
Selector = Callable[[Any, Any], Any]  # (key, value)


def joiner(spec: Mapping[str, Any]) -> Joiner:
    """``template`` puts both sides in as text, a missing one as ``missing`` (default "null").

    ``null_if``: the result is None where the text contains it. ``op``: "sum"; "key-sum": key, colon, sum.
    """

    def join(key: Any, left: Any, right: Any) -> Any:
        assert left is not None or right is not None, "a joiner is never called without any row"
        if "template" not in spec:
            return add(spec["op"], key, left, right)
        missing = spec.get("missing", "null")
        text = spec["template"].replace("{left}", "\1").replace("{right}", "\2")
        text = text.replace("\1", as_text(left, missing)).replace("\2", as_text(right, missing))
        return None if "null_if" in spec and spec["null_if"] in text else text

    return join


def add(op: str, key: Any, left: Any, right: Any) -> Any:
    total = (left or 0) + (right or 0)
    return total if op == "sum" else f"{key}:{total}"


def as_text(value: Any, missing: str) -> str:
    return missing if value is None else str(value)


def selector(spec: Mapping[str, Any]) -> Selector:
    """A foreign-key extractor or the key selector of a stream-global join, as the vectors describe it.

    ``null_prefix`` (only here): a value that begins with it maps to None.
    """
    kind = spec["kind"]

    def select(key: Any, value: Any) -> Any:
        if kind == "constant-null":
            return None
        if kind == "key":
            return key
        if value is None:
            return None
        if kind == "split":
            return part(spec, value)
        if kind == "value":
            prefix = spec.get("null_prefix")
            return None if prefix and value.startswith(prefix) else value
        if kind == "truncate-to-int-string":
            return str(int(float(value)))
        if kind == "contains":
            return spec["then"] if spec["needle"] in value else spec["else"]
        raise ValueError(f"unknown kind of selector: {kind}")

    return select


def part(spec: Mapping[str, Any], value: str) -> Any:
    parts = value.split(spec["sep"])
    if spec["index"] >= len(parts):
        return spec["missing"]
    chosen = parts[spec["index"]]
    if chosen == spec.get("null_if"):
        return None
    return int(chosen) if spec.get("as") == "int" else chosen
