"""Results on their way out: to topics, and to the driver as DataFrames.

    law    a batch writes every result once, in the order in which it was made

`runner.py`: results in wire form, to a topic or to the driver. `shared_topics.py`: several sinks that write to one
topic keep the order of the records. Page: docs/operations.md.
Rules: semantics 3.12 (docs/semantics.md).
"""
