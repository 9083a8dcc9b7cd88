"""The slow, obvious reference: what every join must emit, one record at a time, in plain Python.

One file per join, the law in its header; nothing of the engine is imported. It is Kafka's model with
crossstream's decisions, and it judges the fast kernels.

    run(case)              outputs per input record, final table, drops by reason
    final_table(case)      the relational join of the folded inputs: what any table join must end with
    pairs_and_unmatched    the relational stream-stream join of inputs that are never late

A *case* is a dict in the format of the recorded vectors: ``operator``, ``type``, ``params``, ``joins`` for
chains, and ``inputs``. A table joined with itself is a chain whose one join has the same side twice.
"""

from tests.reference.chain import run
from tests.reference.partitions import hash_partition
from tests.reference.records import Change, Output, Record, Result, fold
from tests.reference.relational import final_table, pairs_and_unmatched

__all__ = [
    "Change",
    "Output",
    "Record",
    "Result",
    "final_table",
    "fold",
    "hash_partition",
    "pairs_and_unmatched",
    "run",
]
