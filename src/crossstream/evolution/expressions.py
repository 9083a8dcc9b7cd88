"""Expressions of Polars for people: without the words that Polars adds when it prints them."""

from __future__ import annotations

import re

_SIMPLER = (
    (re.compile(r"\.struct\.field_by_name\((\w+)\)\(\)"), r".\1"),
    (re.compile(r'\bcol\("(\w+)"\)'), r"\1"),
    (re.compile(r"\bdyn \w+: "), ""),
    (re.compile(r"\bas_struct\("), "struct("),
    (re.compile(r"(?<![\w.)\"])\.when\("), "when("),
    (re.compile(r"(?<=\w)\(\[([^\[\]()]*)\]\)"), r"(\1)"),
)
_ALONE = re.compile(r"(?<![\w.])\((-?[\w.]+|\"[^\"]*\")\)")
"""A name or a literal in brackets of its own, which no function has."""
_TWICE = re.compile(r"\(\(([^()]*)\)\)")


def readable(text: str) -> str:
    """An expression as one would write it; what is not known is left as Polars prints it.

    >>> readable('[(col("left").struct.field_by_name(amount)()) * (dyn int: 2)].alias("amount")')
    '(left.amount * 2).alias("amount")'
    >>> readable('.when([(col("tier")) == ("gold")]).then(dyn float: 0.9).otherwise(dyn float: 1)')
    'when(tier == "gold").then(0.9).otherwise(1)'
    """
    for pattern, simpler in _SIMPLER:
        text = pattern.sub(simpler, text)
    text = _ALONE.sub(r"\1", text).replace("[", "(").replace("]", ")")
    while (fewer := _TWICE.sub(r"(\1)", text)) != text:
        text = fewer
    return text[1:-1] if _is_wrapped(text) else text


def _is_wrapped(text: str) -> bool:
    """Whether a bracket is opened first and closed last."""
    depth = 0
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[:1] == "(" and place == len(text) - 1
    return False
