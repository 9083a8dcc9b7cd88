"""A topology while it is built, and how a new node is added below another one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import Any, TypeVar

import polars as pl

from crossstream.api.checks import check_option, needed_key
from crossstream.api.options import Materialized, Named
from crossstream.api.topology import Topology
from crossstream.api.types import check_fits
from crossstream.columns.functions import Function
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import Location, caller_location, user_location
from crossstream.graph.names import Paths, check_new_name, check_new_source, check_new_store
from crossstream.graph.nodes import ForeignKeyKind, Node, Source
from crossstream.graph.svg import to_svg
from crossstream.missing_names import PointsToNames
from crossstream.notebook import html_note, html_table, html_title
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import SchemaJson, UntypedJson, unnamed
from crossstream.signatures import is_whole

N = TypeVar("N", bound=Node)


@dataclass(slots=True, eq=False)
class Draft:
    """What a `StreamsBuilder` and its handles share.

    ``stores``: store names, and the nodes that keep them. ``open_splits``: the lines of splits that are not finished.
    ``previews``: by node, how many records were tried last, and the result. ``preview_config``: where the topics are.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    open_splits: dict[object, Location | None] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)
    previews: dict[str, tuple[int, pl.DataFrame]] = field(default_factory=dict)
    preview_config: StreamsConfig | None = None

    def add(self, kind: type[N], path: str, given: str | None, /, **attributes: Any) -> N:
        """Adds a node, named ``given`` or by its path (``path`` under its first parent).

        Raises CS-120 if the name or its store's name is taken, CS-122 for topics that another source reads.
        """
        parents: tuple[str, ...] = attributes.get("parents", ())
        parent = parents[0] if parents else None
        own = self.paths.name(parent, path)
        name, is_named = given or own, given not in (None, own)
        node = kind(name=name, is_named=is_named, location=user_location(), **attributes)
        if isinstance(node, Source):
            check_new_source(self.nodes.values(), node)
        self.check_name(node.name)
        check_new_store(self.nodes, self.stores, node)
        self.paths.count(parent, path)
        self.nodes[node.name] = node
        self.stores.update(dict.fromkeys(node.queryable_names, node.name))
        return node

    def check_name(self, name: str) -> None:
        """Refuses (CS-120) a name that an operator has."""
        check_new_name(self.nodes, name)

    def same_source(self, wanted: Source) -> Source | None:
        """The stream source of exactly these topics, which two streams share. Raises CS-122 for other options."""
        for node in self.nodes.values():
            if isinstance(node, Source) and node.shape == "stream" and _same_topics(node, wanted):
                _check_same_options(node, wanted)
                return node
        return None

    def finish(self) -> Topology:
        """The topology so far, as frozen data. Raises CS-126 without a source, CS-127 for an open split."""
        if not any(node.reads_input for node in self.nodes.values()):
            step = 'begin with builder.stream("orders") or builder.table("orders")'
            raise refuse("CS-126", "the topology reads nothing", step, **caller_location())
        for line in self.open_splits.values():
            what = "a split was begun but not finished"
            step = "end it with .default_branch() or .no_default_branch(), which give the branches"
            raise refuse("CS-127", what, step, operator="split", line=None if line is None else str(line))
        return Topology(dict(self.nodes), dict(self.frames))


def _same_topics(source: Source, other: Source) -> bool:
    if source.pattern is None or other.pattern is None:
        return source.pattern is other.pattern and set(source.topics) == set(other.topics)
    return (source.pattern.pattern, source.pattern.flags) == (other.pattern.pattern, other.pattern.flags)


def _check_same_options(source: Source, wanted: Source) -> None:
    options = ("key", "value", "timestamp_extractor", "offset_reset", "past")
    different = []
    for option in options:
        mine, theirs = getattr(source, option), getattr(wanted, option)
        is_expression = isinstance(mine, pl.Expr) or isinstance(theirs, pl.Expr)
        if mine is not theirs and (is_expression or mine != theirs):
            different.append(option)
    if different:
        what = f"the topics of {source.name} are read a second time with another {' and '.join(different)}"
        step = "read them once and use the stream twice, or read them in the same way"
        raise refuse(
            "CS-122", what, step, **caller_location(source.name), **{"first read at": str(source.location)}
        )


OPERATORS: Mapping[ForeignKeyKind, str] = MappingProxyType(
    {"inner": "join", "left": "left_join", "right": "right_join", "outer": "outer_join"}
)
"""The method of each kind of join."""


class Handle(PointsToNames):
    """A node of a draft in the user's hands: a `KStream`, `KTable` or `GlobalKTable`."""

    __slots__ = ("_draft", "_node")

    def __init__(self, draft: Draft, node: Node) -> None:
        self._draft = draft
        self._node = node

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node.name}>"


def given_name(operator: str, named: Named | None) -> str | None:
    """The name in ``named``. Raises CS-101 for other objects."""
    option = check_option(operator, "named", named, Named)
    return None if option is None else option.name


def child(
    draft: Draft,
    kind: type[N],
    path: str,
    parent: Node,
    name: str | None = None,
    /,
    *others: Node,
    **attributes: Any,
) -> N:
    """Adds a node below ``parent`` and ``others``. Serdes and shape are those of ``parent`` unless they are given."""
    parents = (parent.name, *(other.name for other in others))
    kept: dict[str, Any] = {"parents": parents, "shape": parent.shape}
    for part in ("key", "value"):
        kept[part], kept[f"{part}_type"] = getattr(parent, part), getattr(parent, f"{part}_type")
    made = {**kept, **attributes}
    check_fits(path.partition("(")[0], made["value_type"], made["value"])
    return draft.add(kind, path, name, **made)


def table_result(
    operator: str,
    left: Node,
    joiner: Function,
    materialized: Materialized | None,
    either: EngineSerde | None = None,
) -> dict[str, Any]:
    """Joiner, serdes and store of a join of tables, keyed like the left side or by ``either``."""
    option = check_option(operator, "materialized", materialized, Materialized)
    asked = option or Materialized()
    key = needed_key(operator, either or left.key, asked.key, "materialized=Materialized(key=…)")
    made = made_values("joiner", joiner, asked, left)
    store = None if option is None else option.spec(key, made["value"])
    return {"key": key, "store": store, **made}


def made_values(role: str, function: Function, asked: Materialized, like: Node) -> dict[str, Any]:
    """A function that makes values of a table, and their serde and type. ``like``: the (left) input.

    The serde is that of the option; JSON without a type takes the type that the function declares. Without one it is
    JSON, of what JSON gives back, if the table has a name and its input is JSON. None: the values stay in the engine.
    """
    value, declared = asked.value, function.returns
    if value == UntypedJson():
        value = declared if isinstance(declared, SchemaJson) else value
    elif value is None and asked.store is not None and _is_json(like.value):
        value = unnamed(declared or UntypedJson())
    if value is not None and value.dtype is not None:
        function = replace(function, returns=value)
    return {role: function, "value": value, "value_type": declared}


def _is_json(serde: EngineSerde | None) -> bool:
    """Whether a serde is of the JSON family: ``json``, ``json[Order]``, …"""
    return serde is not None and serde.name.partition("[")[0] == "json"


def check_same_builder(operator: str, mine: Draft, other: Draft) -> None:
    """Refuses (CS-135) inputs of different builders."""
    if mine is not other:
        what = f"the two inputs of {operator} come from different builders"
        raise refuse("CS-135", what, "make both with one StreamsBuilder", **caller_location(operator))


ENGINE = "crossstream.preview"
"""Runs previews; it is above this room, and loaded when it is needed."""


class Previewed(Handle):
    """A stream or a table that can be tried without an application."""

    __slots__ = ()

    def preview(
        self,
        rows: int = 10,
        config: StreamsConfig | None = None,
        *,
        topics_dir: str | PathLike[str] | None = None,
        bootstrap_servers: str | None = None,
        kafka: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """What comes out here if the first ``rows`` records of each topic go in: key, value, timestamp (ms).

        It runs in this process, with the operators of production and without Spark. Only what leads to this stream or
        table runs; nothing is written and nothing is kept. Of a table these are the rows at the end, of a stream all
        records. The topics are those of ``config``, of the folder ``topics_dir`` or of the Kafka at
        ``bootstrap_servers`` (``kafka``: settings of its clients); a builder remembers them for the next call. The
        first records of two topics may have no keys in common: then a join has few results, and more ``rows`` help.
        Values that are not all of one type are shown as JSON. Raises `ConfigError`: CS-203 no topics are named, CS-201
        wrong arguments, or an input that is a DataFrame; and the errors of reading and processing.
        """
        if not is_whole(rows) or rows < 1:
            what = f"preview({rows!r}) is not a number of records"
            step = "write how many records of each topic to try: preview(10)"
            raise refuse("CS-201", what, step, **caller_location("preview"))
        found: pl.DataFrame = importlib.import_module(ENGINE).preview(
            self, rows, self._topics_of_preview(config, topics_dir, bootstrap_servers, kafka)
        )
        self._draft.previews[self._node.name] = (rows, found)
        return found

    def _topics_of_preview(
        self, config: Any, topics_dir: Any, bootstrap_servers: Any, kafka: Any
    ) -> StreamsConfig:
        if config is not None and (topics_dir or bootstrap_servers):
            what = "preview has a config, and topics beside it"
            step = "pass one of config, topics_dir and bootstrap_servers"
            raise refuse("CS-203", what, step, **caller_location("preview"))
        if config is not None and not isinstance(config, StreamsConfig):
            what = f"the config of preview is {type(config).__name__}"
            step = 'pass a StreamsConfig, or write preview(10, topics_dir="topics")'
            raise refuse("CS-201", what, step, **caller_location("preview"))
        if topics_dir is not None or bootstrap_servers is not None:
            config = StreamsConfig(
                application_id="preview",
                topics_dir=topics_dir,
                bootstrap_servers=bootstrap_servers,
                kafka=kafka or {},
            )
        known: StreamsConfig | None = config or self._draft.preview_config
        if known is None or (known.servers is None and known.topics_path is None):
            what = "preview does not know where the topics are"
            step = (
                'write preview(10, config), preview(10, topics_dir="…") or preview(10, bootstrap_servers="…")'
            )
            raise refuse("CS-203", what, step, **caller_location("preview"))
        self._draft.preview_config = known
        return known

    def _repr_html_(self) -> str:
        """In a notebook: what it is, the rows of its last preview, and the drawing of what leads to it."""
        node = self._node
        facts = [type(self).__name__]
        facts += [
            f"{part}: {serde.name}" for part in ("key", "value") if (serde := getattr(node, part)) is not None
        ]
        facts += [f"store: {node.queryable_name}"] if node.queryable_name else []
        parts = [html_title(node.name, facts)]
        known = self._draft.previews.get(node.name)
        if known is None:
            parts.append(html_note("preview(10, topics_dir=…) or preview(10, bootstrap_servers=…) tries it"))
        else:
            count, frame = known
            parts.append(html_table(frame.columns, frame.head(SHOWN).iter_rows()))
            more = f", of {frame.height} rows" if frame.height > SHOWN else ""
            parts.append(html_note(f"from the first {count} records of each topic{more}"))
        nodes = leading_to(self._draft.nodes, node)
        return "".join([*parts, to_svg(Topology(nodes))])


SHOWN = 10
"""So many rows a notebook shows."""


def leading_to(nodes: Mapping[str, Node], node: Node) -> dict[str, Node]:
    """The node and all above it, parents before children."""
    wanted, left = {node.name}, [node]
    while left:
        above = [nodes[name] for name in left.pop().parents if name not in wanted]
        wanted |= {one.name for one in above}
        left += above
    return {name: one for name, one in nodes.items() if name in wanted}
