"""Checks of the arguments of a test driver."""

from __future__ import annotations

from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.signatures import is_whole


def check_count(setting: str, number: object, most: int | None = None) -> None:
    """Raises `ConfigError` CS-201 for what is no number from 1 on, or to ``most``."""
    if is_whole(number) and 1 <= number <= (most or number):
        return
    end, step = ("", "1, or a larger int") if most is None else (f" to {most}", f"{most}, or a smaller int")
    what = f"TopologyTestDriver({setting}={number!r}) is not a number from 1{end}"
    raise refuse("CS-201", what, f"write {setting}={step}", **caller_location())
