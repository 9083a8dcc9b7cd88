"""Codes of commands, topologies and settings: CS-0xx to CS-2xx."""

from __future__ import annotations

from crossstream.error_codes.code import code
from crossstream.errors import ConfigError, CopartitionError, CrossStreamError, TopologyError

COMMANDS = {
    "CS-001": code(
        CrossStreamError,
        "a command failed for a reason that crossstream did not foresee: a bug",
        next="run it again with `--debug` and report what it shows",
    ),
}

BUILDING = {
    "CS-101": code(
        TopologyError,
        "an argument or a setting of an option object is unknown, missing, of the wrong kind, positional "
        "where it must be named, or does not apply to this source",
        "an object does not have the method that is called, such as `table.map` (also an `AttributeError`)",
        next="the message names the nearest setting or says what it takes; a serde is made by a call: "
        "`serdes.json()`, or named by a type: `value=Order`; of a method, which object has it",
    ),
    "CS-102": code(
        TopologyError,
        "the name of a topic, operator, store or branch is not a valid Kafka name",
        next='choose a name of ASCII letters, digits, ".", "_" and "-", at most 249 of them',
    ),
    "CS-104": code(
        TopologyError,
        "a function is missing or is not callable",
        "it takes other arguments than it gets, is `async` or a generator where one value is wanted",
        "it reads a column that does not exist",
        next="write it as the message shows; `flat_map` and `flat_map_values` take functions with `yield`",
    ),
    "CS-110": code(
        TopologyError,
        "a duration is not valid, is finer than a millisecond, or is longer than 2<sup>61</sup> ms (73 "
        "million years)",
        "the window of a stream join is missing, or ends before it begins",
        next='write a `timedelta`, an int of milliseconds, or a string such as "10 seconds" or "1 hour 30 '
        'minutes"',
    ),
    "CS-111": code(
        TopologyError,
        "an expression reads other records than its own (`sum`, `over`, `shift`, …), so its result would "
        "depend on how batches are cut",
        next="write it over one record: `.list` for the elements of a list, `pl.sum_horizontal` for "
        "several columns",
    ),
    "CS-112": code(
        TopologyError,
        "a [function](in-production.md#functions), or a serde of your own, cannot be sent to Spark's "
        "workers: it holds a lock, a connection, an open file, or the Spark session",
        next="let each worker make what it holds when it is first needed, in a function with "
        "`functools.cache` for instance",
    ),
    "CS-113": code(
        TopologyError,
        "an expression reads values or keys [whose type is not "
        "declared](serdes.md#expressions-need-a-declared-type)",
        next='declare it: `serdes.json(Order)`, `serdes.json({"price": pl.Float64})`; after a callable by '
        "its annotation (`-> Order`) or `Repartitioned(value=…)`; or pass a callable",
    ),
    "CS-114": code(
        TopologyError,
        'an expression, or a text such as `foreign_key="custmer"`, does not fit the declared type: the '
        "field does not exist, or cannot do this",
        next="correct it; the message names the nearest field",
    ),
    "CS-115": code(
        TopologyError,
        "the result of an expression does not fit its serde or its operator: a predicate that is not "
        "boolean, no list in `flat_map_values`, several columns",
        next="cast or compare inside the expression, or name another serde; `pl.struct` makes one value "
        "of several",
    ),
    "CS-116": code(
        TopologyError,
        "a [Delta or Iceberg table](delta-and-iceberg.md) is made of values or keys whose type is not "
        "declared",
        next="declare it before: `repartition(cs.Repartitioned(value=serdes.json({…})))`, or "
        "`Materialized(value=…)`",
    ),
    "CS-120": code(
        TopologyError,
        "two operators, stores or branches have the same name",
        next="give one of them another name",
    ),
    "CS-122": code(
        TopologyError,
        "a topic is read twice in ways that conflict: as a table and as something else, as two tables, "
        "with different options, in overlapping sets of topics, or by a pattern and another source",
        next="read it once and use the result twice, or read it in the same way; exclude the topic from "
        "the pattern; for sets of topics, read each once and `merge`",
    ),
    "CS-126": code(
        TopologyError,
        "the topology reads nothing",
        next='begin with `builder.stream("orders")` or `builder.table("orders")`',
    ),
    "CS-127": code(
        TopologyError,
        "a split was not finished",
        "a branch was added after its end",
        next="end a split with `default_branch()` or `no_default_branch()`, and begin another one for "
        "more branches",
    ),
    "CS-128": code(
        CopartitionError,
        "the inputs of a join are repartitioned to different numbers of partitions",
        next="give both the same `Repartitioned(partitions=…)`, or leave it out of one",
    ),
    "CS-134": code(
        TopologyError,
        "the keys of the inputs of a join have different serdes, so no record would ever find a partner",
        "a foreign key has another type than the keys of the other table",
        next="use one serde for both; `map` or `select_key` converts one of the keys; or join by "
        "`foreign_key`; declare both alike, or convert the foreign key",
    ),
    "CS-135": code(
        TopologyError,
        "an input of a join or merge is of a kind that cannot be used here",
        "it comes from another builder",
        next="use the kind the message names; `stream.to_table()` and `table.to_stream()` convert",
    ),
    "CS-136": code(
        TopologyError,
        "[this kind of join](which-join.md) or suppression does not exist, or does not take these "
        "options: an outer join with a table, a right or outer foreign-key join without `keyed_by`, "
        "`grace` without a table that keeps versions long enough, …",
        next="write it as the message shows",
    ),
    "CS-140": code(
        TopologyError,
        "a serde is missing",
        "two settings name different serdes for the same thing",
        next="give it where the message says: `key=str`, `value=dict`, or another type or serde; leave "
        "one of two out",
    ),
    "CS-143": code(
        TopologyError,
        "a [`ttl`](state.md#rows-that-expire) where rows do not expire: of a global table, a table with versions, the "
        "result of an aggregation, a join, a filter or a `map_values`",
        "a `clock` without a `ttl`",
        next="give it to the table that is read, or to `to_table`: what is made of its rows goes with them; sessions "
        "(`windowed_by(SessionWindows(…))`) make aggregates that begin again",
    ),
    "CS-150": code(
        TopologyError,
        "a DataFrame cannot be a source: it does not stream, its rows change later, a column is missing "
        "or has a type that no serde reads, of which no key is made, or whose name another one has in other letters",
        next="make it with `spark.readStream`; select, rename or cast the columns as the message says; "
        "aggregate in windows with a watermark",
    ),
}

SETTINGS = {
    "CS-201": code(
        ConfigError,
        "a setting is unknown, missing, out of range, not one of the choices, not available yet, "
        "contradicts another one, or names a port that is taken",
        next="the message names the nearest setting, what it takes, or the package to install",
    ),
    "CS-203": code(
        ConfigError,
        "the topology has topics, and the configuration does not say where they are, or names both Kafka "
        "and file topics",
        next="give one of `bootstrap_servers` and `topics_dir`; on the command line `--topics-dir` or "
        "`--bootstrap-servers`, or a `StreamsConfig` named `config` in the file",
    ),
    "CS-210": code(
        ConfigError,
        "a duration is not valid, does not say its unit (`trigger=2`; only the timeout of "
        "`await_termination` is in seconds), is finer than a millisecond, or is longer than "
        "2<sup>61</sup> ms (73 million years)",
        next='write a `timedelta`, an int of milliseconds, or a string such as "10 seconds" or "1 hour 30 '
        'minutes"',
    ),
    "CS-230": code(
        ConfigError,
        "Spark did not start: no Java 17 or newer, a package that is missing or of a version that does "
        "not work, a `spark.master` that is wrong or does not answer, too little memory, or workers with "
        "another Python",
        next="run `crossstream doctor`; correct `JAVA_HOME`",
    ),
    "CS-232": code(
        ConfigError,
        "the Spark session cannot be used: it is of Spark Connect, which has no RDDs, or has been stopped",
        "a setting (`spark.remote`, `SPARK_REMOTE`) makes PySpark create such a session",
        '`engine="local"` runs without one',
        next="use a classic session, and stop the application before its session",
    ),
    "CS-233": code(
        ConfigError,
        "the application cannot do this now: it has failed, is paused, was stopped while records were "
        "left, or is called by a function that one of its own batches calls",
        next="make a new `SparkStreams`; call `resume()`; call it from another thread, or after the "
        "batch; the next run processes what is left",
    ),
    "CS-241": code(
        ConfigError,
        "a test topic of the driver cannot be used like this: the topology does not read it, it does not "
        "have that partition, or the record or its headers are not valid",
        next="check the name; `TopologyTestDriver(partitions=…)`; `TestRecord(key, value, timestamp, "
        'headers=[("a", b"b")])`',
    ),
    "CS-270": code(
        ConfigError,
        "a file on the command line does not exist, cannot be read, raised while it was loaded, or holds "
        "no topology of that name",
        next="check the path; name a `Topology`, a builder, or a function without arguments that returns "
        'one; put what must not run under `if __name__ == "__main__"`',
    ),
    "CS-281": code(ConfigError, "wrong use of the command line", next="the message says what goes together"),
}
