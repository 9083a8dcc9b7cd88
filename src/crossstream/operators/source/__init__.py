"""Reads records from topics and DataFrames.

    law    every record between the offsets of a batch is read once, in the order of its partition

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream(["words", "names"], words)
    <KStream words+names>

`plan.py`: which fields are decoded, and in which form, for their first reader. `runner.py`: checks the records of a
range, decodes them once, and sets their timestamps. Page: docs/serdes.md.
Rules: semantics 3.1 (docs/semantics.md).
"""
