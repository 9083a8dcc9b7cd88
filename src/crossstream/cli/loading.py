"""Files of users: loaded as Python loads a script, and searched for a topology and its settings."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from crossstream.api import StreamsBuilder
from crossstream.api.topology import Topology
from crossstream.config import StreamsConfig
from crossstream.errors import ConfigError, CrossStreamError, TopologyError, told

NAMES = ("topology", "builder", "build")
"""What a topology may be called in a file, in the order it is looked for."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file defines; ``config`` is None if it names no `StreamsConfig`."""

    file: Path
    topology: Topology
    config: StreamsConfig | None


def load(target: str) -> Loaded:
    """Loads ``file.py`` or ``file.py:name``.

    Raises `ConfigError`: CS-270 no such file, CS-270 the file raised, CS-270 no topology in it, CS-270 the
    function that should make it raised; and whatever of ours the file raises itself.
    """
    file, name = split_target(target)
    module = execute(file)
    config = getattr(module, "config", None)
    return Loaded(file, _topology(module, name, file), config if isinstance(config, StreamsConfig) else None)


def split_target(target: str) -> tuple[Path, str | None]:
    """The file and the name in ``file.py:name``; ``ConfigError`` CS-270 if there is no such file."""
    path, colon, name = target.rpartition(":")
    if not colon or Path(target).exists():
        path, name = target, ""
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise ConfigError(
            "there is no such file",
            code="CS-270",
            where={"file": path},
            next="give the path of a Python file that builds a topology, such as app.py or app.py:name",
        )
    return file, name or None


def execute(file: Path) -> ModuleType:
    """Runs the file under a name of its own, with its folder on the path.

    Nothing in it can be imported afterwards: what is not found in `sys.modules` is sent to Spark's workers, and
    noted in the state folder, by value, so that neither needs the file.
    """
    _on_path(file.parent)
    name = "crossstream_app_" + re.sub(r"\W", "_", file.stem)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(
            "this is not a Python file", code="CS-270", where={"file": file}, next="give a .py file"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except CrossStreamError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{file.name} cannot be loaded: {told(error)}",
            code="CS-270",
            where={"line": _line_of(error, file)},
            next='mend the file; what must not happen here belongs under if __name__ == "__main__"',
        ) from error
    finally:
        sys.modules[name] = _Names(module)
    return module


class _Names(ModuleType):
    """Stands in `sys.modules` for a file: annotations that are text find its names, but pickle finds nothing to import.

    Such annotations are resolved when a serde is made, in ``build()`` for instance, and when its class is sent to
    other processes.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._vars = vars(module)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return self._vars


def _on_path(folder: Path) -> None:
    """Lets the file import what lies beside it, in this process and in the workers on this machine."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])


def _topology(module: ModuleType, name: str | None, file: Path) -> Topology:
    names = (name,) if name is not None else NAMES
    for candidate in names:
        value = getattr(module, candidate, None)
        if value is not None:
            return _built(value, candidate, file)
    made = [key for key, value in vars(module).items() if isinstance(value, Topology | StreamsBuilder)]
    raise ConfigError(
        f"{file.name} has no {' or '.join(names)}",
        code="CS-270",
        where={"file": file},
        next=f"name the one to use: {file.name}:{made[0]}"
        if made
        else "let it name a Topology or a StreamsBuilder `topology`, or a function that returns one `build`",
    )


def _built(value: Any, name: str, file: Path) -> Topology:
    if callable(value):
        value = _called(value, name, file)
    if isinstance(value, StreamsBuilder):
        return _finished(value, file)
    if isinstance(value, Topology):
        return value
    raise ConfigError(
        f"{name} in {file.name} is {type(value).__name__}, not a topology",
        code="CS-270",
        where={"file": file},
        next="a Topology, a StreamsBuilder, or a function without parameters that returns one is wanted",
    )


def _finished(builder: StreamsBuilder, file: Path) -> Topology:
    """The topology of a builder; no line of the user's is at fault if it reads nothing (CS-126), but the file."""
    try:
        return builder.build()
    except TopologyError as error:
        if error.code == "CS-126":
            error.where = {"file": file}
        raise


def _called(function: Callable[[], Any], name: str, file: Path) -> Any:
    try:
        return function()
    except CrossStreamError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{name}() in {file.name} raised {told(error)}",
            code="CS-270",
            where={"line": _line_of(error, file)},
            next="it is called without arguments and must return a Topology or a StreamsBuilder",
        ) from error


def _line_of(error: BaseException, file: Path) -> str:
    """The innermost line of the user's file in a traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)
