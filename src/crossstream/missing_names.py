"""Names that a class does not have: the error says where they are.

A newcomer calls a method of a stream on a table, or one of Java, Spark or pandas. Two tables hold what is known:
`_WAYS`, the way from one class to a method of another, and `_OTHER_NAMES`, our names of what others call differently.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crossstream.errors import TopologyError, caller_location


class MissingNameError(TopologyError, AttributeError):
    """An object does not have this attribute. It is an `AttributeError`, too, so that ``hasattr`` works."""


class PointsToNames:
    """Objects that say where an attribute is which they do not have.

    >>> from crossstream import StreamsBuilder
    >>> StreamsBuilder().table("orders").map(print)
    Traceback (most recent call last):
    crossstream.missing_names.MissingNameError: [CS-101] KTable has no attribute 'map'
      where: operator orders, line <doctest crossstream.missing_names.PointsToNames[1]>:1
      next:  make it a stream of its changes first: table.to_stream().map(…)
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker knows which names there are

        def __getattr__(self, name: str) -> Any:
            raise missing_name(type(self), name, self)


class _PointsToSettings(type):
    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise missing_name(cls, name)


class OptionObject(PointsToNames, metaclass=_PointsToSettings):
    """An object of settings. Java makes one by static methods (``TimeWindows.ofSizeWithNoGrace``), we by arguments."""

    __slots__ = ()


def missing_name(owner: type, name: str, found_in: object = None) -> AttributeError:
    """The error of an attribute that ``owner`` does not have; a plain one for names that only programs look for."""
    if name.startswith("_"):
        return AttributeError(f"{owner.__name__!r} object has no attribute {name!r}")
    node = getattr(found_in, "_node", None)
    return MissingNameError(
        f"{owner.__name__} has no attribute {name!r}",
        code="CS-101",
        where=caller_location(None if node is None else node.name),
        next=_advice(owner, name),
    )


def _advice(owner: type, name: str) -> str:
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    ours = _OTHER_NAMES.get(plain, plain)
    public = [one for one in dir(owner) if not one.startswith("_")]
    for candidate in (plain, ours):
        if candidate in public:
            return f"here it is called {candidate}"
    way = next((way for names, way in _WAYS.get(owner.__name__, ()) if ours in names.split()), None)
    if way is not None:
        return way.format(ours)
    if issubclass(owner, OptionObject):
        settings = ", ".join(f"{one}=…" for one in inspect.signature(owner).parameters)
        return f"settings are arguments: {owner.__name__}({settings})"
    close = difflib.get_close_matches(plain, public, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(public)}"


_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "apply": "map_values",
        "assign": "map_values",
        "close": "stop",
        "collect": "preview",
        "concat": "merge",
        "distinct": "deduplicate",
        "drop_duplicates": "deduplicate",
        "explode": "flat_map_values",
        "flat_transform": "process",
        "flat_transform_values": "process_values",
        "fold": "aggregate",
        "for_each": "foreach",
        "foreach_batch": "for_each_batch",
        "full_join": "outer_join",
        "get_queue_size": "queue_size",
        "get_state_store": "get_key_value_store",
        "get_timestamped_key_value_store": "get_key_value_store",
        "get_versioned_key_value_store": "get_versioned_store",
        "groupby": "group_by",
        "head": "preview",
        "inner_join": "join",
        "join_by_mapped_key": "join",
        "key_by": "select_key",
        "last_progress": "progress",
        "left_join_by_mapped_key": "left_join",
        "left_outer_join": "left_join",
        "limit": "preview",
        "max": "agg",
        "mean": "agg",
        "metrics": "progress",
        "min": "agg",
        "pipe_key_value_list": "pipe_records",
        "pipe_record_list": "pipe_records",
        "pipe_value_list": "pipe_records",
        "process_all_available": "process_available",
        "read_key_value": "read_record",
        "read_key_values_to_list": "read_key_values",
        "read_records_to_list": "read_records",
        "read_value": "read_record",
        "read_values_to_list": "read_values",
        "select": "map_values",
        "show": "preview",
        "state": "status",
        "sum": "agg",
        "take": "preview",
        "transform": "process",
        "transform_values": "process_values",
        "union": "merge",
        "union_all": "merge",
        "unique": "deduplicate",
        "where": "filter",
        "window": "windowed_by",
        "with_column": "map_values",
        "with_columns": "map_values",
        "write": "to",
        "write_stream": "to",
    }
)

_STREAM = (
    "map flat_map flat_map_values select_key group_by_key merge split peek foreach print repartition deduplicate"
    " process process_values transform_batches for_each_batch"
)
_TABLE = "suppress right_join join_many left_join_many nest"
_BOTH = "filter filter_not map_values group_by join left_join outer_join to to_delta to_iceberg to_postgres preview"
_GROUPED = "count reduce aggregate agg"
_IN_TIME = "windowed_by cogroup"
_BRANCHES = "branch default_branch no_default_branch"
_DRAWN = "describe plan to_mermaid to_dot to_dict"
_READ = "stream table global_table stream_from table_from"
_PIPED = "pipe_input pipe_record pipe_records advance_time"
_PRODUCED = "read_record read_records read_values read_key_values read_key_values_to_map is_empty queue_size"
_STORED = "get get_many range prefix all fetch approximate_count to_arrow to_polars to_pandas"

_Ways = tuple[tuple[str, str], ...]

_STORE: _Ways = ((_STORED, "it is a method of a store: app.store(name), or open_store(state_dir, name)"),)
_BUILDS: _Ways = (
    ("build", "the builder has it: builder.build()"),
    (_DRAWN, "the topology has it: builder.build().{}()"),
    ("run start", "write cs.run(builder, config)"),
    (
        "add_state_store add_global_store",
        "a processor names its stores: stream.process(supplier, stores=[…])",
    ),
)
_AGGREGATES: _Ways = (
    (f"{_BOTH} {_TABLE} to_stream", "aggregate first, which gives a table: grouped.count().{}(…)"),
    (
        f"{_STREAM} to_table",
        "do it before the grouping, or aggregate first: grouped.count().to_stream().{}(…)",
    ),
    (_BRANCHES, "aggregate first, which gives a table: grouped.count().to_stream().split().{}(…)"),
    ("queryable_store_name", 'aggregate first, which gives a table: grouped.count(store="…")'),
    ("emit_strategy", 'write windowed_by(…, emit="close")'),
    *_BUILDS,
)
_READS: _Ways = (
    (f"{_STREAM} {_BOTH} to_table", 'read a topic first: builder.stream("…").{}(…)'),
    (f"{_GROUPED} {_IN_TIME}", 'read a topic first: builder.stream("…").group_by_key().{}(…)'),
    (_BRANCHES, 'read a topic first: builder.stream("…").split().{}(…)'),
    (f"{_TABLE} to_stream", 'read a topic first: builder.table("…").{}(…)'),
    ("queryable_store_name", 'read a topic first: builder.table("…", store="…")'),
)
_ENDS = "end the split first, which gives its streams by name: split.no_default_branch()"

_WAYS: Mapping[str, _Ways] = MappingProxyType(
    {
        "KStream": (
            (f"{_GROUPED} {_IN_TIME}", "group the records first: stream.group_by_key().{}(…)"),
            (_TABLE, "make it a table first: stream.to_table().{}(…)"),
            (_BRANCHES, "begin with split(): stream.split().{}(…)"),
            ("to_stream", "it is a stream already: leave to_stream() out"),
            ("queryable_store_name", 'only a table has a store to query: stream.to_table(store="…")'),
            (
                "through",
                'write stream.to(topic), and read it by builder.stream("…"); or stream.repartition()',
            ),
            *_BUILDS,
            *_STORE,
        ),
        "KTable": (
            (_STREAM, "make it a stream of its changes first: table.to_stream().{}(…)"),
            (_GROUPED, "group the rows first: table.group_by(…).{}(…)"),
            (_IN_TIME, "only streams have it: table.to_stream().group_by_key().{}(…)"),
            (_BRANCHES, "only streams are split: table.to_stream().split().{}(…)"),
            ("to_table", "it is a table already: leave to_table() out"),
            *_BUILDS,
            *_STORE,
        ),
        "GlobalKTable": (
            (
                f"{_STREAM} {_GROUPED} {_IN_TIME} {_BRANCHES} to_table",
                "read the topic by builder.stream(…), which gives a stream",
            ),
            (f"{_BOTH} {_TABLE} to_stream", "read the topic by builder.table(…), which gives a KTable"),
            *_BUILDS,
            *_STORE,
        ),
        "GroupedKStream": _AGGREGATES,
        "WindowedKStream": (
            ("windowed_by", "the groups have windows already: leave the second windowed_by(…) out"),
            ("cogroup", "cogroup first: grouped.cogroup(…).windowed_by(…)"),
            *_AGGREGATES,
        ),
        "CogroupedKStream": (
            ("count reduce agg", "each cogroup has its aggregator: cogrouped.aggregate(initializer)"),
            *_AGGREGATES,
        ),
        "GroupedKTable": (
            (_IN_TIME, "only streams have it: table.to_stream().group_by(…).{}(…)"),
            *_AGGREGATES,
        ),
        "BranchedKStream": (
            (f"{_STREAM} {_BOTH} to_table", f'{_ENDS}["…"].{{}}(…)'),
            (f"{_GROUPED} {_IN_TIME}", f'{_ENDS}["…"].group_by_key().{{}}(…)'),
            (f"{_TABLE} to_stream queryable_store_name", f'{_ENDS}["…"].to_table().{{}}'),
            *_BUILDS,
        ),
        "StreamsBuilder": (*_READS, *_BUILDS),
        "Topology": (
            (_READ, "it is built: builder.{}(…) comes before builder.build()"),
            ("add_source", 'begin with cs.StreamsBuilder(): builder.stream("…")'),
            ("add_processor", 'begin with cs.StreamsBuilder(): builder.stream("…").process(supplier)'),
            ("add_sink", 'begin with cs.StreamsBuilder(): builder.stream("…").to(topic)'),
            ("run start", "write cs.run(topology, config)"),
            *_BUILDS,
        ),
        "TopologyTestDriver": (
            (_PIPED, 'pipe into a topic: driver.create_input_topic("…").{}(…)'),
            (_PRODUCED, 'read a topic: driver.create_output_topic("…").{}'),
            (
                "store",
                'ask for its kind: driver.get_key_value_store("…"), get_window_store or get_versioned_store',
            ),
            (
                "run start process_available stop",
                "records are processed as they are piped; commit() ends a batch",
            ),
            (_STORED, 'it is a method of a store: driver.get_key_value_store("…").{}(…)'),
        ),
        "TestInputTopic": ((_PRODUCED, 'read another topic: driver.create_output_topic("…").{}'),),
        "TestOutputTopic": ((_PIPED, 'pipe into another topic: driver.create_input_topic("…").{}(…)'),),
        "SparkStreams": (
            ("run", "write app.start() and app.await_termination(), or cs.run(topology, config)"),
            ("clean_up", "stop it and delete the folder state_dir"),
            ("query get_key_value_store get_window_store get_versioned_store", 'write app.store("…")'),
            (_STORED, 'it is a method of a store: app.store("…").{}(…)'),
        ),
        "Materialized": (("as as_ with with_", 'write Materialized(store="…", key=…, value=…)'),),
        "Named": (("as as_ with with_ of", 'write Named("…")'),),
        "JoinWindows": (
            (
                "of_time_difference_with_no_grace of_time_difference_and_grace",
                'write JoinWindows.of("10 seconds", grace="1 minute")',
            ),
        ),
    }
)
"""By class: names, separated by blanks, and the next step of the error; ``{}`` is the name."""
