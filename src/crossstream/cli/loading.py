"""The application of a command: the topology of its Python file, and its settings; `crossstream describe`."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from crossstream.api.builder import StreamsBuilder
from crossstream.api.topology import Topology
from crossstream.application.inputs import reads_topics as reads
from crossstream.cli.options import DEAD_LETTER, kafka_settings, of_option, refuse_without
from crossstream.cli.target import on_path, split
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, CrossStreamError, TopologyError, type_and_text
from crossstream.graph.nodes import Sink

NAMES = ("topology", "builder", "build")
"""Names of the topology in a file, in the order of the search."""


def describe(arguments: Namespace) -> int:
    """Prints the topology of a file: as text, as a drawing, or the plan that Spark runs."""
    if arguments.form != "plan":
        refuse_without("--plan", "add --plan, or drop it", arguments, "partitions")
    topology = load(arguments.file).topology
    if arguments.form == "plan":
        text = topology.plan(arguments.partitions)
    else:
        draw = {"mermaid": topology.to_mermaid, "dot": topology.to_dot}
        text = draw.get(arguments.form, topology.describe)()
    print(text.rstrip("\n"))
    return 0


@dataclass(slots=True)
class Asked:
    """What a file that is loaded passes to `run`."""

    topology: Topology | None = None
    config: StreamsConfig | None = None


class LoadingEnds(BaseException):
    """Leaves a file that is loaded at its call of `run`: what follows is for after the application."""


_loading: ContextVar[Asked | None] = ContextVar("crossstream_loading", default=None)


@contextmanager
def loading() -> Iterator[Asked]:
    """In this block `run` runs nothing: it says what it was called with, and ends the file."""
    asked = Asked()
    token = _loading.set(asked)
    try:
        yield asked
    except LoadingEnds:
        pass
    finally:
        _loading.reset(token)


def end_loading(topology: Topology, config: StreamsConfig | None) -> None:
    """Ends the file that is loaded, if one is, with what it passed to `run`."""
    asked = _loading.get()
    if asked is not None:
        asked.topology, asked.config = topology, config
        raise LoadingEnds


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file defines; ``config`` is None without a `StreamsConfig` of this name."""

    file: Path
    topology: Topology
    config: StreamsConfig | None


def load(target: str) -> Loaded:
    """Loads ``file.py`` or ``file.py:name``.

    Raises `ConfigError` CS-270 if the file does not exist, raises, or has no topology; and the errors of
    crossstream that the file itself raises.
    """
    file, name = _split_target(target)
    with loading() as asked:
        module = execute(file)
    config = asked.config or getattr(module, "config", None)
    topology = asked.topology if name is None and asked.topology else _topology(module, name, file)
    return Loaded(file, topology, config if isinstance(config, StreamsConfig) else None)


def _split_target(target: str) -> tuple[Path, str | None]:
    path, name = split(target)
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        next = "give the path of a Python file that builds a topology, such as app.py or app.py:name"
        raise _error("there is no such file", next, file=path)
    return file, name or None


def execute(file: Path) -> ModuleType:
    """Runs the file as a module of another name, with its folder on the path.

    Nothing can be imported from the module later. So pickle sends its functions to Spark's workers, and writes
    its classes to the state folder, by value: neither needs the file.
    """
    on_path(file.parent)
    name = "crossstream_app_" + re.sub(r"\W", "_", file.stem)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _error("this is not a Python file", "give a .py file", file=file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LoadingEnds:
        return module
    except CrossStreamError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{file.name} cannot be loaded: {type_and_text(error)}"
        next = 'fix the file; put what only a script should do under if __name__ == "__main__"'
        raise _error(what, next, line=_line_of(error, file)) from error
    finally:
        sys.modules[name] = _Names(module)
    return module


class _Names(ModuleType):
    """Stands in `sys.modules` for a file: its names resolve annotations that are text, but pickle cannot import them.

    Annotations are resolved when a serde is made, and when its class is sent to other processes.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._vars = vars(module)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return self._vars


def _topology(module: ModuleType, name: str | None, file: Path) -> Topology:
    names = NAMES if name is None else (name,)
    found = [(one, value) for one in names if (value := getattr(module, one, None)) is not None]
    if not found:
        made = [key for key, value in vars(module).items() if isinstance(value, Topology | StreamsBuilder)]
        default = "name a Topology or a StreamsBuilder `topology`, or a function that returns one `build`"
        next = f"give the name: {file.name}:{made[0]}" if made else default
        raise _error(f"{file.name} has no {' or '.join(names)}", next, file=file)
    chosen, value = found[0]
    if callable(value):
        value = _called(value, chosen, file)
    if isinstance(value, StreamsBuilder):
        value = _finished(value, file)
    if isinstance(value, Topology):
        return value
    what = f"{chosen} in {file.name} is {type(value).__name__}, not a topology"
    next = "give the name of a Topology, a StreamsBuilder, or a function without parameters that returns one"
    raise _error(what, next, file=file)


def _finished(builder: StreamsBuilder, file: Path) -> Topology:
    """The topology of a builder; an error about a topology that reads nothing (CS-126) names the file."""
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
        what = f"{name}() in {file.name} raised {type_and_text(error)}"
        next = "let it return a Topology or a StreamsBuilder when called without arguments"
        raise _error(what, next, line=_line_of(error, file)) from error


def _error(what: str, next: str, **where: object) -> CrossStreamError:
    return refuse("CS-270", what, next, **where)


def _line_of(error: BaseException, file: Path) -> str:
    """The innermost line of the file in a traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


# -- settings -----------------------------------------------------------------------------------------------

ON_ERROR = ("deserialization_errors", "processing_errors")
CLIENTS = ("kafka", "spark")


def settled(loaded: Loaded, arguments: Namespace) -> StreamsConfig:
    """The settings to run with. Raises `ConfigError`: CS-203 without topics, and what `StreamsConfig` raises."""
    try:
        given = _given(arguments)
        config = _made(loaded, given) if loaded.config is None else _changed(loaded.config, given)
    except ConfigError as error:
        raise of_option(error) from None
    reads_topics = any(map(reads, loaded.topology)) or any(loaded.topology.each(Sink))
    if reads_topics and config.servers is None and config.topics_path is None:
        raise no_topics(loaded.file, "reads or writes")
    return config


def with_topics_of(config: StreamsConfig, arguments: Namespace) -> StreamsConfig:
    """The settings with the topics that the options name, if they do."""
    names = [name for name in ("topics_dir", "bootstrap_servers") if getattr(arguments, name) is not None]
    given = {name: getattr(arguments, name) for name in names}
    try:
        kafka = kafka_settings(arguments)
        return _changed(config, {**given, "kafka": kafka} if kafka else given)
    except ConfigError as error:
        raise of_option(error) from None


def no_topics(file: Path, reads: str = "reads") -> CrossStreamError:
    """The refusal (CS-203) of an application whose topics are nowhere."""
    what = f"the application {reads} topics, but no option or setting says where they are"
    return refuse("CS-203", what, file=file)


def _given(arguments: Namespace) -> dict[str, Any]:
    """The options that were typed, by the names of their settings."""
    settings = {field.name for field in fields(StreamsConfig)}
    given = {name: value for name, value in vars(arguments).items() if name in settings and value is not None}
    given |= {name: _on_error(given[name]) for name in ON_ERROR if name in given}
    given |= {"kafka": kafka_settings(arguments), "spark": dict(arguments.spark)}
    return {name: value for name, value in given.items() if value != {}}


def _on_error(text: str) -> Any:
    return DeadLetter(text.removeprefix(DEAD_LETTER)) if text.startswith(DEAD_LETTER) else text


def _made(loaded: Loaded, given: dict[str, Any]) -> StreamsConfig:
    """Settings from options alone; the file gives the application its name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.file.stem)
    return StreamsConfig(**{"application_id": name, **given})


def _changed(config: StreamsConfig, given: dict[str, Any]) -> StreamsConfig:
    """A file's settings, overridden by options; other topics or another name also reset what depends on them."""
    if "topics_dir" in given:
        given = {"bootstrap_servers": None, "kafka": {}, **given}
    elif "bootstrap_servers" in given:
        given = {"topics_dir": None, **given}
    if "application_id" in given and _has_default_state(config):
        given = {"state_dir": None, **given}
    for name in CLIENTS:
        if given.get(name):
            given[name] = {**getattr(config, name), **given[name]}
    return replace(config, **given)


def _has_default_state(config: StreamsConfig) -> bool:
    default = StreamsConfig(application_id=config.application_id).state_path
    return Path(config.state_path) == Path(default)
