"""`crossstream replay --pdb`: Python's own debugger in the functions of an application."""

from __future__ import annotations

import pdb
from bdb import BdbQuit
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from crossstream.cli.console import say
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import Node
from crossstream.query.text import to_json, to_plain
from crossstream.recompute.reason import located
from crossstream.serdes.keys import LeftOrRight
from crossstream.serdes.windowed import Windowed


class _Debugger(pdb.Pdb):
    """Stays out of this package; remembers that it was left by ``q``."""

    def __init__(self) -> None:
        super().__init__(skip=["crossstream", "crossstream.*"])
        self.has_quit = False

    def set_quit(self) -> None:
        self.has_quit = True
        super().set_quit()


@dataclass(slots=True)
class Stops:
    """Stops at calls about a key; without one at the first call only. And where a function raises.

    ``key``: as it is typed. ``values``: of the records of that key, as JSON: a function that gets one is about it, too.
    """

    key: str | None
    values: Collection[str] = field(default_factory=frozenset)
    has_quit: bool = False
    has_stopped: bool = False
    shown: BaseException | None = None

    def called(self, node: Node, key: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Makes the call, in the debugger if it is one to stop at."""
        if self.has_quit:
            raise BdbQuit
        if self._is_wanted(key, arguments):
            self.has_stopped = True
            say(f"{located(node)}: a call for the key {_text(key)}")
            debugger = _Debugger()
            found = debugger.runcall(call, *arguments)
            if debugger.has_quit:
                self.has_quit = True
                raise BdbQuit
            return found
        try:
            return call(*arguments)
        except Exception as error:
            say(f"{located(node)}: its function raised {type(error).__name__} for the key {_text(key)}")
            self.look_at(error, error.__traceback__)
            raise

    def failed(self, error: CrossStreamError) -> None:
        """Looks at what a batch failed on, unless that was done."""
        cause = error.__cause__ or error
        if self.shown is None:
            self.look_at(cause, cause.__traceback__)

    def look_at(self, error: BaseException, traceback: TracebackType | None) -> None:
        """The debugger where an error was raised."""
        self.shown = error
        debugger = _Debugger()
        debugger.reset()
        debugger.interaction(None, traceback)
        self.has_quit = self.has_quit or debugger.has_quit

    def _is_wanted(self, key: Any, arguments: tuple[Any, ...]) -> bool:
        if self.key is None:
            return not self.has_stopped
        return self.key in _texts(key) or any(_json(one) in self.values for one in arguments)


def _texts(key: Any) -> list[str]:
    """A key as it may be typed; of windows the key inside, of two tables either side."""
    if isinstance(key, Windowed):
        return _texts(key.key)
    if isinstance(key, LeftOrRight):
        return [_text(key), *(_text(side) for side in (key.left, key.right) if side is not None)]
    return [_text(key)]


def _text(key: Any) -> str:
    plain = to_plain(key)
    return plain if isinstance(plain, str) else to_json(plain)


def _json(value: Any) -> str | None:
    try:
        return None if value is None else to_json(value)
    except (TypeError, ValueError, CrossStreamError):  # an object of no serde
        return None
