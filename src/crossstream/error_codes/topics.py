"""Codes of topics, and of tables that results are written to: CS-6xx."""

from __future__ import annotations

from crossstream.error_codes.code import code
from crossstream.errors import SinkError, SourceError

READING = {
    "CS-601": code(
        SourceError,
        "records were deleted before they were read: by retention, or segments of a file topic are gone",
        next="keep records longer (`retention.ms`, `retention.bytes`); `on_lost_records='skip'` "
        "continues, and counts the gap",
    ),
    "CS-602": code(
        SourceError,
        "a topic, or a partition of it, does not exist",
        next="create it, or correct the name; `crossstream topics list` shows what is there",
    ),
    "CS-603": code(
        SourceError,
        "the topic is [not the one that was read](restarts-and-guarantees.md#where-a-start-begins): it "
        "was deleted and created again, or ends before the offset that was read last",
        next="start with a new `application_id`, or an empty `state_dir`; or restore the topic",
    ),
    "CS-604": code(
        SourceError,
        "no broker answered for longer than `broker_patience`, a partition has no leader or does not "
        "advance, or the broker does not give its offsets",
        next="start the brokers; check `bootstrap_servers` and `security.protocol`; look into the "
        "broker's log",
    ),
    "CS-605": code(
        SourceError,
        "the broker refused access, perhaps to a single topic, which it then does not list",
        next="check the TLS and SASL settings of the Kafka connection and the rights (ACLs) of its user",
    ),
    "CS-606": code(
        SourceError,
        "what a topic holds cannot be read: the broker's answer, or a file of a file topic, is damaged, "
        "cannot be opened, or has a newer format",
        next="read the offset with another client; restore the file; records before the offset are intact",
    ),
    "CS-608": code(
        SourceError,
        "offsets cannot be committed to the consumer group; an application continues and "
        "[warns](in-production.md#monitoring)",
        next="if other consumers use a group of this name, choose another `application_id`; otherwise "
        "check the rights (ACLs) to the group",
    ),
    "CS-613": code(
        SourceError,
        "a version of a Delta or Iceberg table [is gone](lake-sources.md#versions-that-are-gone) before it "
        "was read: vacuumed, expired, or cleaned out of the log",
        next="keep files and the log longer than the application may stand still; a new `state_dir` starts "
        "with a new snapshot",
    ),
    "CS-614": code(
        SourceError,
        "two rows of a Delta or Iceberg table have [the same key](lake-sources.md#keys) in one version",
        next="name all columns of the key: `key=[…]`; or remove the duplicates from the table",
    ),
    "CS-615": code(
        SourceError,
        "a Delta or Iceberg table needs [a feature](lake-sources.md#what-a-table-may-have) that this "
        "version cannot read",
        next="turn the feature off, and rewrite the files that use it; the message names it",
    ),
    "CS-616": code(
        SourceError,
        "a commit deletes or rewrites rows of a table that is [read as a "
        "stream](lake-sources.md#streams-of-appends)",
        next="read the table with `table_from_delta` or `table_from_iceberg`; or pass such commits over: "
        "`skip_changes=True`",
    ),
    "CS-617": code(
        SourceError,
        "a column that is read of a Delta or Iceberg table [was dropped, renamed, or has another "
        "type](lake-sources.md#schemas-that-change)",
        next="name the columns of now in `key=` and `columns=`, and start with a new `state_dir`",
    ),
    "CS-618": code(
        SourceError,
        "the [catalog](lake-sources.md#iceberg) of an Iceberg table cannot be opened: wrong properties, no "
        "rights, or no answer",
        next="correct the properties in `catalog`: `type`, `uri`, `warehouse`, credentials",
    ),
    "CS-619": code(
        SourceError,
        "the query that reads the DataFrame sources ended",
        next="see the message of Spark; start the application again",
    ),
    "CS-620": code(
        SourceError,
        "the development broker cannot be started or stopped: no Java 17, no jars of Kafka, a port that "
        "is taken, a folder that cannot be written, or this system",
        next="the message says which, and shows the end of the broker's log",
    ),
    "CS-621": code(
        SourceError,
        "a table of `global_table_from` cannot be read: its function or its DataFrame failed, a column is gone or has "
        "another type, or a key occurs twice",
        next="see the message; a running application keeps the rows that it has, and tries again at the next refresh",
    ),
    "CS-622": code(
        SourceError,
        "tables cannot be cut by the [transactions](debezium.md#transactions-stay-whole) of their database: the "
        "transaction topic has several partitions, a topic has events of two connectors, or records are rows without "
        "envelopes",
        next="the message says which; let the connector write such topics, or leave `transactions=` out",
    ),
    "CS-630": code(
        SourceError,
        "records are missing [between a history and its topic]"
        "(lake-sources.md#years-from-the-lake-seconds-from-kafka): "
        "the topic no longer has the offset after the last row of the table",
        next="append what is missing to the table, then start again; or keep the topic longer (`retention.ms`)",
    ),
    "CS-631": code(
        SourceError,
        "the rows of a history are no records of its topic: they have no partition or offset, or ones that the topic "
        "does not have",
        "a row does not fit the type of the keys or values",
        "the topic was read before without the history",
        next="correct the table, or name another one; the message says which rows",
    ),
}

WRITING = {
    "CS-651": code(
        SinkError, "a record was not delivered within `broker_patience`", next="start the brokers"
    ),
    "CS-652": code(
        SinkError,
        "the topic or partition to write to does not exist; brokers are [not asked to create "
        "it](in-production.md#topics-on-kafka)",
        next="create it, or correct the name; `crossstream topics list` shows what is there",
    ),
    "CS-653": code(
        SinkError,
        "the broker refused writing",
        next="check the TLS and SASL settings of the Kafka connection and the rights (ACLs) of its user",
    ),
    "CS-654": code(
        SinkError,
        "Kafka does not take a record: it, or [its batch](in-production.md#topics-on-kafka), is too big",
        "its timestamp is out of range",
        next="see the message",
    ),
    "CS-655": code(
        SinkError,
        "a partitioner returned a partition that the topic does not have",
        next="return a partition that exists, a list of them, or `None` for Kafka's default",
    ),
    "CS-656": code(
        SinkError,
        "a topic cannot be created: it exists, its name is not valid, or the partitions, settings or "
        "rights are wrong",
        next="use it, delete it first, or correct what the message names",
    ),
    "CS-657": code(
        SinkError,
        "a [Delta or Iceberg](delta-and-iceberg.md#what-a-table-cannot-hold) or [Postgres](postgres.md#the-table) "
        "table has other columns or partitions than the topology says",
        "it has another key",
        "it has rules of its own",
        next='write another table; `schema_mode="merge"` adds columns',
    ),
    "CS-658": code(
        SinkError,
        "a [Delta or Iceberg](delta-and-iceberg.md#what-a-table-cannot-hold) or [Postgres](postgres.md#types) "
        "table cannot hold a record",
        next="change the value before: `map_values(…)`, or the key: `select_key(…)`; or skip such "
        "records: `processing_errors='skip'` or `cs.DeadLetter(topic)`",
    ),
    "CS-665": code(
        SinkError,
        "file topics, a file of bad records, or a Delta, Iceberg or Postgres table, cannot be written: no space, "
        "no rights, a disk that fails, or a staged file that is gone",
        "[Postgres](postgres.md#each-batch-once) does not answer, or a constraint of it refuses a row",
        next="check the free space and the rights, then start the application again: it repeats the batch",
    ),
}
