"""Grouping and aggregation: one row for each group of records, or of rows of a table; also for each window of time.

    law    after any number of batches, cut anywhere, the table holds for each group (of each window) what the functions
           give for its records one after the other, in order of arrival

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, text = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> words = builder.stream("words", text)
    >>> words.group_by_key().count(materialized=cs.Materialized(store="counts")).queryable_store_name
    'counts'

`kernel.py`: what a batch changes in the table. `folding.py`: what applies rows to aggregates: `counts.py` counts them,
`calls.py` calls the user's functions, and `builtin/` has the built-in aggregates. `refused.py`: rows that an adder
refused. `runner.py`: the steps in a task. `plan.py`: its round and its stores. Windows: `operators/windowed/`. Rules:
semantics 3.4 (docs/semantics.md). Page: docs/aggregations.md.
"""
