"""Where records come in.

    law    every record between the offsets of a batch is read once, in the order of its partition

`plan.py`: which fields are decoded, and in which form, for who reads them first. `runner.py`: records of a range become
changes, checked, decoded once, and given their timestamps. Page: docs/serdes.md.
Rules: semantics 3.1 (docs/semantics.md).
"""
