"""Trying a stream or a table on the first records of its topics, and what both look like in a notebook."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from os import PathLike
from typing import Any

import polars as pl

from crossstream.api.draft import Handle
from crossstream.api.topology import Topology
from crossstream.config import StreamsConfig
from crossstream.errors import ConfigError, caller_location
from crossstream.graph.describe import to_svg
from crossstream.graph.nodes import Node
from crossstream.notebook import html_note, html_table, html_title
from crossstream.signatures import is_whole

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
            raise ConfigError(
                f"preview({rows!r}) is not a number of records",
                code="CS-201",
                where=caller_location("preview"),
                next="write how many records of each topic to try: preview(10)",
            )
        found: pl.DataFrame = importlib.import_module(ENGINE).preview(
            self, rows, self._topics_of_preview(config, topics_dir, bootstrap_servers, kafka)
        )
        self._draft.previews[self._node.name] = (rows, found)
        return found

    def _topics_of_preview(
        self, config: Any, topics_dir: Any, bootstrap_servers: Any, kafka: Any
    ) -> StreamsConfig:
        if config is not None and (topics_dir or bootstrap_servers):
            raise ConfigError(
                "preview has a config, and topics beside it",
                code="CS-203",
                where=caller_location("preview"),
                next="pass one of config, topics_dir and bootstrap_servers",
            )
        if config is not None and not isinstance(config, StreamsConfig):
            raise ConfigError(
                f"the config of preview is {type(config).__name__}",
                code="CS-201",
                where=caller_location("preview"),
                next='pass a StreamsConfig, or write preview(10, topics_dir="topics")',
            )
        if topics_dir is not None or bootstrap_servers is not None:
            config = StreamsConfig(
                application_id="preview",
                topics_dir=topics_dir,
                bootstrap_servers=bootstrap_servers,
                kafka=kafka or {},
            )
        known: StreamsConfig | None = config or self._draft.preview_config
        if known is None or (known.servers is None and known.topics_path is None):
            raise ConfigError(
                "preview does not know where the topics are",
                code="CS-203",
                where=caller_location("preview"),
                next='write preview(10, config), preview(10, topics_dir="…") or preview(10, bootstrap_servers="…")',
            )
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
