"""Where `Consumed(load="first")` is refused."""

from __future__ import annotations

from crossstream.api.options import Consumed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import Shape


def check_load(name: str, shape: Shape, consumed: Consumed, *, has_history: bool = False) -> None:
    """Refuses (CS-101) ``load`` for sources that have nothing to load before other records."""
    if consumed.load is None:
        return
    if shape == "stream":
        what = (
            'load="first" is for tables, and this is a stream: its records come in the order of their times'
        )
        step = "read the topic with builder.table(…), or leave load out"
    elif shape == "global":
        what = "a global table is always read before other records, at each start"
        step = "leave load out"
    elif consumed.offset_reset == "latest":
        what = 'load="first" reads what the topic holds, and offset_reset="latest" passes it over'
        step = "leave one of them out"
    elif has_history:
        what = "the rows of a history are read before other records, and those of its topic with them"
        step = 'leave load="first" out'
    else:
        return
    raise refuse("CS-101", f"{name}: {what}", step, **caller_location(name))
