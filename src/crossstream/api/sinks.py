"""The methods that end a stream: its records leave to a topic, to a function, to the driver or to the terminal."""

from __future__ import annotations

from typing import Any

from crossstream.api.branched import PrintRecord
from crossstream.api.checks import check_signature, check_topic, function_of, known_serdes
from crossstream.api.draft import Previewed, child, given_name
from crossstream.api.options import Named, Produced, produced_of
from crossstream.api.types import AsSerde, declared_key, declared_value
from crossstream.columns.functions import keyed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.nodes import FrameSink, Node, Peek, Sink
from crossstream.signatures import fits_call, refuse_calls, settings_error
from crossstream.typing import Action, BatchFunction, TopicSelector


class EndingStream(Previewed):
    """The methods of a stream after which nothing follows; `WrittenToTables` has those of tables in a lake."""

    __slots__ = ()

    def foreach(self, action: Action, named: Named | None = None) -> None:
        """Calls the action for each record; nothing follows. A repeated batch calls it again.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.foreach(lambda key, order: None)
        """
        function = function_of(
            "foreach", "action", action, {"value": self._node}, with_key=True, expression=False
        )
        self._end(Peek, "foreach", named, action=function, terminal=True)

    def print(self, label: str | None = None, named: Named | None = None) -> None:
        """Prints ``[label]: key, value`` for each record, where it is processed.

        The label is the stream's name if it is not given.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.print("seen")
        """
        action = PrintRecord(self._node.name if label is None else label)
        function = function_of("print", "action", keyed(action), {"value": self._node})
        self._end(Peek, "print", named, action=function, terminal=True)

    @refuse_calls(settings_error("CS-101", "to"))
    def to(
        self,
        topic: str | TopicSelector,
        produced: Produced | None = None,
        *,
        key: AsSerde | None = None,
        value: AsSerde | None = None,
    ) -> None:
        """Writes every record to a topic, or to the topic that ``topic(key, value)`` returns.

        ``key``, ``value``: serdes, or types that have one. Without them they are those of the stream: of its topic, or
        of the type that an expression, an annotation or a join without a joiner gives.

        A topic of Kafka must exist (CS-652). A missing file topic is created with one partition, but not one that a
        function names (CS-652). Several streams may write to one topic: the results of a record stay in order, and
        before those of later records. Raises CS-140 where a serde is unknown, CS-102 for a name that Kafka does not
        allow, CS-104 for a function that does not take key and value. Source: semantics 3.12.

        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=serdes.json()))
        >>> orders.map_values(lambda order: order["price"]).to("prices", value=float)
        """
        option = produced_of("to", produced, key, value)
        node, path = self._node, f"to({topic})"
        target: dict[str, Any] = {"topic": topic}
        if callable(topic):
            check_signature("to", "topic", topic, ("key", "value"))
            path, target = "to", {"topic_of": topic}
        else:
            check_topic("to", topic)
        kept = option.key or declared_key(node), option.value or declared_value(node)
        key, value = known_serdes(path, *kept, "pass {}")
        named = None if callable(topic) else topic
        key, value = key.written_to(named, is_key=True), value.written_to(named, is_key=False)
        settings = {**target, "partitioner": option.partitioner, "shape": "none"}
        child(self._draft, Sink, path, node, option.name, key=key, value=value, **settings)

    def for_each_batch(
        self, function: BatchFunction, named: Named | None = None, *, parallel: bool = False
    ) -> None:
        """Calls ``function(frame, batch_id)`` in the driver with a Spark DataFrame of each batch's records.

        Columns: key, value (a struct for JSON), timestamp. Declare the type of JSON values; without one it is inferred
        from the records of each batch. The call comes before the batch is committed, and again with the same
        ``batch_id`` if the batch is repeated: write idempotently, or check the id. Batches without records are skipped.
        A function that requires three arguments also gets a `BatchMark`: of which application, sink and state the batch
        is. `once_in` makes one for databases.

        The records of a batch pass through the driver. With ``parallel=True`` they do not: tasks write them to files
        beside the state, and Spark's executors read these. Columns and types are the same, the order of records is not
        promised. The frame can be read until the function returns, for then the files go.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> order = serdes.json({"price": pl.Float64})
        >>> orders = StreamsBuilder().stream("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.for_each_batch(lambda frame, n: frame.write.mode("overwrite").parquet(f"orders/batch={n}"))
        """
        given: Any = function
        with_mark = callable(given) and not fits_call(given, ("frame", "batch_id"))
        if not (with_mark and fits_call(given, ("frame", "batch_id", "mark"))):
            with_mark = False
            check_signature("for_each_batch", "function", function, ("frame", "batch_id"), optional=False)
        asked: Any = parallel
        if not isinstance(asked, bool):
            what = f"for_each_batch(parallel={parallel!r}) is neither True nor False"
            raise refuse("CS-101", what, "pass one of them", **caller_location("for_each_batch"))
        step = "put repartition(Repartitioned({})) before it"
        key, value = known_serdes("for_each_batch", self._node.key, self._node.value, step)
        settings = {"function": function, "with_mark": with_mark, "parallel": parallel}
        self._end(FrameSink, "for_each_batch", named, key=key, value=value, **settings)

    def _end(self, kind: type[Node], operator: str, named: Named | None, **attributes: Any) -> None:
        name = given_name(operator, named)
        child(self._draft, kind, operator, self._node, name, shape="none", **attributes)
