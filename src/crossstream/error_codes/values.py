"""Codes of values, bytes and functions: CS-4xx and CS-5xx."""

from __future__ import annotations

from crossstream.error_codes.code import code
from crossstream.errors import ProcessingError, SerdeError

VALUES = {
    "CS-401": code(
        SerdeError,
        "a value or a column does not fit the type of the serde: another type, a field that does not "
        "exist, a null in a field that is never null",
        next="return what the serde takes; make the field optional",
    ),
    "CS-402": code(
        SerdeError,
        "bytes, or a line of text, that the serde cannot read",
        "a [serde of your own](serdes.md) raised while it read them",
        next="check that the topic was written with the same serde; to skip such records, or send them to "
        'a dead letter topic, set `deserialization_errors="skip"` or `cs.DeadLetter(topic)`',
    ),
    "CS-403": code(
        SerdeError,
        "a value of the right type that has no bytes: a number out of range, [NaN or an infinity in "
        "JSON](serdes.md#floats), JSON that would be the text `null`",
        "a serde of your own raised while it wrote it",
        next="see the message; return `None` to delete",
    ),
    "CS-404": code(
        SerdeError,
        "a type that the serde does not know; one without a column form, so that no expression or "
        "DataFrame can use it",
        "a key type whose equal objects may have different bytes (a struct with `omit_defaults`)",
        next="use a dataclass, a `msgspec.Struct` or a schema; or a Python callable",
    ),
    "CS-410": code(
        SerdeError,
        "a result is kept without a serde, and JSON does not give it back unchanged (a dataclass, an "
        "Enum, a datetime, a Decimal, a set)",
        next="name a serde for the values, such as `cs.Materialized(value=serdes.json(Order))` or "
        "`cs.Repartitioned(value=…)`, annotate what the function returns (`-> Order`), or return dicts, "
        "lists, text and numbers",
    ),
    "CS-412": code(
        SerdeError,
        "a method of a [serde of your own](serdes.md) returned something else than it must: a generator "
        "instead of a list, another number of rows, a list instead of an Arrow array",
        next="return what the message names",
    ),
    "CS-420": code(
        SerdeError,
        "the [schema registry](schema-registry.md) did not answer within `patience`",
        "it refused access",
        "only a state folder names it, and then it is not asked",
        next="check that it runs, and its URL; wait longer for it with the setting `patience`, such as "
        '`{"url": …, "patience": "5 minutes"}`',
    ),
    "CS-421": code(
        SerdeError,
        "the schema registry refused a schema (incompatible, not valid), or has none under this subject",
        next="the message says what differs; register the schema, or correct the name of the subject",
    ),
}

FUNCTIONS = {
    "CS-501": code(
        ProcessingError,
        "a function of yours raised",
        "it returned what its operator cannot use",
        next="fix the function, or skip such records: `processing_errors='skip'` or `cs.DeadLetter(topic)`",
    ),
    "CS-505": code(
        ProcessingError,
        "a partitioner of keys raised, or returned a partition that does not exist; this stops the "
        "application, whatever `processing_errors` says",
        next="return exactly one int from 0 to the number of partitions less one (KIP-775)",
    ),
    "CS-507": code(
        ProcessingError,
        "a record has a timestamp or a header that is not valid: a negative timestamp, one of "
        "2<sup>62</sup> ms or more, a null timestamp or header in a DataFrame",
        "a DataFrame of changes has an unknown `_change_type`, no version, two rows of one key in one version, or "
        "commits that come in parts or late",
        next="use `Consumed(timestamp_extractor=…)`; in a DataFrame, filter or correct such rows; name all columns "
        "of the key; let commits come whole",
    ),
    "CS-509": code(
        ProcessingError,
        'the buffer of a [suppression](suppression.md#bounds) with `on_full="stop"` is full',
        next="raise the bound or leave it out; shorten the windows or the grace period; or, until a time "
        'limit, choose `on_full="emit"`',
    ),
    "CS-590": code(
        ProcessingError,
        "a batch could not be run: a process raised an error of no other code",
        "Spark's JVM has ended: killed, or out of memory",
        next="see the cause, Spark's log and the system's; `spark.driver.memory`; then start the process "
        "again",
    ),
    "CS-591": code(
        ProcessingError,
        "a listener, or a function given to `for_each_batch`, raised or called `sys.exit()`",
        "a connection of [`once_in`](delta-and-iceberg.md#databases) does not roll back, or its function "
        "ended the transaction",
        next="fix it; the message says whether the batch is committed or repeated at the next start; call "
        "`stop()` where the application was started",
    ),
}
