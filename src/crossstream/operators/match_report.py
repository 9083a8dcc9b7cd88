"""What joins report about rows that looked for a partner; if no row found one, also a key of each side."""

from __future__ import annotations

from collections.abc import Callable

from crossstream.columns.match_counts import Asked
from crossstream.columns.values import Values
from crossstream.operators.runner import Runner

Key = Callable[[], Values | None]
"""Returns a key of a side; None for a side without rows."""

_LONGEST = 100
"""Characters of a key that is shown."""


def report_asked(runner: Runner, asked: Asked, left: Key, right: Key, name: str | None = None) -> None:
    """Adds the counts of an operator; ``name``: of one of its joins, if it has several."""
    operator, report = name or runner.step.node, runner.task.report
    report.count_asked(operator, asked.matched, asked.unmatched)
    if runner.task.batch.wants_keys and not asked.matched:
        report.note_keys({operator: (_shown(left()), _shown(right()))})


def _shown(key: Values | None) -> tuple[str, str] | None:
    return None if key is None else shown(key)


def shown(key: Values) -> tuple[str, str]:
    """A key as people read it: (its repr, its type and serde).

    >>> from crossstream import serdes
    >>> shown(Values(serdes.int64(), objects=[7]))
    ('7', 'int, int64')
    """
    serde = "no serde" if key.serde is None else key.serde.name
    try:
        value = key.objects()[0]
        text, kind = repr(value), type(value).__name__
    except Exception:  # a custom serde or class
        text, kind = repr(key.wire()[0].as_py()), "bytes"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", f"{kind}, {serde}"
