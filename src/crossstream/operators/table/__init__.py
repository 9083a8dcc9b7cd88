"""A table: the last value of each key.

    law    after any number of batches, cut anywhere, the table holds for each key the value that arrived last
           (of a versioned table of records: the one with the largest timestamp), and no row where that value is null

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream("words", words).to_table(materialized=cs.Materialized(store="last-words"))
    <KTable words.to_table>

`kernel.py`: what a batch changes in a table, with and without versions. `runner.py`: keeps it in a store. `plan.py`:
where it is kept. Page: docs/queries.md.
Rules: semantics 2.2 (docs/semantics.md).
"""
