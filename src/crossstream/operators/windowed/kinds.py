"""The windows of each kind at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from crossstream.columns.windows import WindowSpec
from crossstream.operators.windowed.sessions import SessionLogic
from crossstream.operators.windowed.sliding import SlidingWindowLogic
from crossstream.operators.windowed.time_windows import TimeWindowLogic
from crossstream.operators.windowed.windows import WindowLogic


def logic_of(windows: WindowSpec) -> WindowLogic:
    """What windows of this kind do."""
    return _OF_KIND[windows.kind](windows)


_OF_KIND: Mapping[str, Callable[[WindowSpec], WindowLogic]] = MappingProxyType(
    {
        "time": TimeWindowLogic,
        "unlimited": TimeWindowLogic,
        "sliding": SlidingWindowLogic,
        "session": SessionLogic,
    }
)
