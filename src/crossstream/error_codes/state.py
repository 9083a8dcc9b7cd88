"""Codes of the state: CS-7xx."""

from __future__ import annotations

from crossstream.error_codes.code import code
from crossstream.errors import IncompatibleStateError, StateError

STATE = {
    "CS-701": code(
        StateError,
        "a file of the state is damaged, missing, a link, or belongs to another store",
        "it says what [no state says](security.md#a-folder-of-someone-else)",
        "a DataFrame of `for_each_batch(…, parallel=True)` is read after its function has returned",
        next="restore the state folder from a copy, or start the application on an empty one",
    ),
    "CS-703": code(
        StateError,
        "a store was written with a serde of your own, and the reader does not have it",
        "`serdes=` names none of the store",
        next='`open_store(…, serdes={"key": …, "value": …})`; the message lists the names',
    ),
    "CS-704": code(
        StateError,
        "the state has another format",
        next="run the version of crossstream that wrote it, or start with a new `application_id` or an "
        "empty `state_dir`",
    ),
    "CS-706": code(
        StateError,
        "the disk refuses what a batch has written",
        next="check the disk and its free space, then start the application again: it repeats the batch",
    ),
    "CS-707": code(
        StateError,
        "the object store of the state does not answer, or refuses",
        next="check the store and the rights on it, then start the application again: it repeats the batch",
    ),
    "CS-710": code(
        StateError,
        "there is no queryable store of that name, or it is of another kind than was asked for, or than "
        "it was when it was opened",
        next='name it: `Materialized(store="…")`; the message lists the stores, or says which method to '
        "call; open the store again",
    ),
    "CS-711": code(
        StateError,
        "a store cannot answer this question: key `None`, a time without versions, a row of a store of "
        "records, keys that are not a list, or that no dict can hold",
        "[a table of Spark](stores-in-spark.md) is asked for a column, a type or versions that the store does not have",
        next="the message says what to ask: `get(key)`, `get_many([key])`, `fetch(key, …)`; "
        "`Materialized(history_retention=…)`",
    ),
    "CS-713": code(
        StateError,
        "the folder holds no state",
        "it no longer holds the state after that batch: `retain_batches` keeps more",
        "[a stream of a store](stores-in-spark.md#a-stream) has read more than the state holds now, or of another one",
        next="give the `state_dir` of an application that has run",
    ),
    "CS-714": code(
        StateError,
        "a batch cannot be [run again](verify.md#batch-4711-on-my-desk): it, or the state before it, is not retained "
        "any more: `retain_batches` keeps more",
        next="choose a batch that the message names; or read a bundle that was packed in time",
    ),
    "CS-715": code(
        StateError,
        "a batch cannot be [run again](verify.md#batch-4711-on-my-desk): it has rows of DataFrames, which are kept "
        "nowhere",
        "it read no records: it changed the number of state partitions, or the application",
        next="choose another batch; the message names those that can be run again",
    ),
    "CS-716": code(
        StateError,
        "a [bundle](verify.md#a-bundle) is damaged, is not one, or is of another batch",
        next="pack it again with `crossstream state bundle`, and name the batch that it has",
    ),
    "CS-720": code(
        StateError,
        "the state folder is in use by another application, or belongs to another one",
        "the [lease](state.md#state-on-an-object-store) on it was lost; nothing of the batch was committed",
        next="stop it first, or give this application a `state_dir` of its own",
    ),
    "CS-723": code(
        StateError,
        "the location of the state cannot be opened: an unknown scheme, no such bucket or folder, no "
        "rights, no answer",
        next="check bucket, credentials, region and endpoint; or the path and the rights on it",
    ),
    "CS-730": code(
        StateError,
        "the number of partitions cannot be changed by a command: a batch is begun and not committed",
        "a partitioner places the rows of a store",
        next="start the application with another number of `partitions`: it finishes the batch, and "
        "places the rows again",
    ),
    "CS-731": code(
        StateError,
        "the number of partitions cannot be changed: [a processor has put rows](processors.md#stores) "
        "under other keys than those of its records",
        next="keep the number of partitions; or put rows under the keys of the records only",
    ),
    "CS-740": code(
        StateError,
        "on Kafka, another instance of the application runs, [on a state folder of its "
        "own](state.md#one-instance-one-state-folder)",
        next="stop one of them, or use another `application_id`; if the other one was killed, wait 30 "
        "seconds",
    ),
    "CS-741": code(
        StateError,
        "the state folder is new or empty, and [the consumer group has committed "
        "offsets](state.md#one-instance-one-state-folder)",
        next="restore `state_dir`, or name the one that belongs to the offsets; or choose a new "
        "`application_id`; `StreamsConfig(on_lost_state='restart')` begins again, as at a first start",
    ),
    "CS-742": code(
        StateError,
        "the state is older than the [results in Kafka](restarts-and-guarantees.md#exactly-once-into-kafka)",
        next="restore a newer copy of the state, or use another `application_id`; "
        "`on_lost_state='restart'` continues from this state, and writes the results of the batches "
        "between again",
    ),
    "CS-743": code(
        StateError,
        "the mark of the [results in Kafka](restarts-and-guarantees.md#exactly-once-into-kafka) is lost: "
        "brokers forget the offsets of a group after `offsets.retention.minutes`, and those of a deleted "
        "topic",
        next="look at the end of the result topics; then commit offset 0 of partition 0 of this topic to "
        'this group, with the metadata `{"state": …, "batch": …}` of the batch that is there',
    ),
    "CS-744": code(
        StateError,
        "the state is older than a [Delta or Iceberg](delta-and-iceberg.md#each-batch-once) or "
        "[Postgres](postgres.md#each-batch-once) table",
        next='restore the table to the version before, too; `on_lost_state="restart"` continues from the '
        "older state: streams are appended again from there",
    ),
    "CS-745": code(
        StateError,
        "a [Delta or Iceberg](delta-and-iceberg.md#each-batch-once) or [Postgres](postgres.md#each-batch-once) "
        "table lacks a batch that was written to it: it is missing, was replaced, or is an older version",
        next="restore the table; to write a new table from now on, give the sink another name: "
        "`named=cs.Named(…)`",
    ),
    "CS-746": code(
        StateError,
        "the topology lacks the [Delta or Iceberg](delta-and-iceberg.md#each-batch-once) or "
        "[Postgres](postgres.md#each-batch-once) table of a batch that was being written",
        next="start once with the topology before, which writes the rest of the batch; then change it",
    ),
    "CS-750": code(
        IncompatibleStateError,
        "the topology or its sources [changed](changing-an-application.md) since the last run: stores that "
        "are new, gone, or of another kind, serde or history; other tables of `join_many`; other DataFrame sources",
        next="run `crossstream evolve` with the new code, which takes the state over; or "
        "go back to the topology of the state; or start with a new `application_id` or an empty `state_dir`",
    ),
    "CS-751": code(
        StateError,
        "a [change of the application](changing-an-application.md) needs rows that cannot be had: those of a "
        "DataFrame, which cannot be read again",
        next="keep what the change touches, or start with a new `application_id` and an empty `state_dir`",
    ),
    "CS-752": code(
        StateError,
        "`--changed` names no store, operator or sink of the topology",
        next="take a name that the message lists",
    ),
    "CS-753": code(
        StateError,
        "the state does not say which topology it belongs to, so a [changed one](changing-an-application.md) cannot be "
        "compared with it: an earlier version wrote it",
        next="start the application once more with the code it had, which notes it; then change the code",
    ),
    "CS-754": code(
        StateError,
        "a changed topology needs records of a topic again that are not there any more, or rows of a DataFrame",
        next="put the records back into the topic; or leave that part of the topology as it was; or start with a new "
        "`application_id`",
    ),
    "CS-755": code(
        StateError,
        "the results that were sent cannot be read back, and no store has them: so it is not known which rows differ; "
        "or a partitioner would get keys that another serde has written",
        next='give the result a store, `store="…"`, before it changes; or send it to a new topic or table',
    ),
    "CS-756": code(
        StateError,
        "a store of a changed topology cannot be rebuilt from what the state has",
        next="start with a new `application_id`, or an empty `state_dir`",
    ),
    "CS-757": code(
        StateError,
        "the code before a [change](changing-an-application.md) has begun a batch and not committed it, and some of "
        "its results may have been written",
        next="start the application once more with the code it had: it finishes the batch; then change it",
    ),
    "CS-758": code(
        StateError,
        "a [change cannot be taken back](changing-an-application.md) by its own rows: batches came after it, or there "
        "is no change to take back",
        next="run crossstream evolve with the code of before, which sends back what differs; or revert with "
        "--keep-results, which goes back to the state of before, and leaves results unchanged",
    ),
    "CS-759": code(
        StateError,
        "a [change cannot be taken back](changing-an-application.md): the state of before is not retained any more",
        next="run crossstream evolve with the code of before",
    ),
}
