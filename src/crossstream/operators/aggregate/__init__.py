"""Grouping and aggregation: one row for each group of records, or of rows of a table; also for each window of time.

    law    after any number of batches, cut anywhere, the table holds for each group (of each window) what the functions
           give for its records one after the other, in order of arrival

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, text = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> words = builder.stream("words", text)
    >>> words.group_by_key().count(materialized=cs.Materialized(store="counts")).queryable_store_name
    'counts'

`windows.py`: which windows a record belongs to, and which have closed. `kernel.py`: what a batch changes in the table.
`folds.py`: counting, and the user's functions one after the other. `columns.py`, `parts.py`: built-in aggregates.
`sessions.py`, `sliding.py`: windows that depend on the records. `runner.py`: the step in a task. `plan.py`: its round
and its store. Rules: semantics 3.4 (docs/semantics.md). Page: docs/aggregations.md.
"""
