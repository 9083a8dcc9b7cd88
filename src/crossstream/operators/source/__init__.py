"""Reads records from topics and DataFrames.

    law    every record between the offsets of a batch is read once, in the order of its partition

`plan.py`: which fields are decoded, and in which form, for their first reader. `runner.py`: checks the records of a
range, decodes them once, and sets their timestamps. Page: docs/serdes.md.
Rules: semantics 3.1 (docs/semantics.md).
"""
