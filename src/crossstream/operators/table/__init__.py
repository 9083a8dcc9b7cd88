"""A table: the last value of each key.

    law    after any number of batches, cut anywhere, the table holds for each key the value that arrived last, and no
           row where that value is null

`kernel.py`: what a batch changes in a table, with and without versions. `runner.py`: keeps it in a store. `plan.py`:
where it is kept. Page: docs/queries.md.
Rules: semantics 2.2 (docs/semantics.md).
"""
