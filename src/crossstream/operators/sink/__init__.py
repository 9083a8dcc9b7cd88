"""Writes results to topics, and to functions as DataFrames.

    law    a batch writes every result once, in the order in which it was made

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream("words", words).to("copies")
    >>> [node.topic for node in builder.build() if node.name == "words.to(copies)"]
    ['copies']

`plan.py`: which sinks write together. `runner.py`: results in wire form, to a topic or to the driver, and the order of
records that several sinks write to one topic. `frame_columns.py`, `frame_files.py`: results as columns of a DataFrame,
and in files, so that they do not pass through the driver. Page: docs/restarts-and-guarantees.md.
Rules: semantics 3.12 (docs/semantics.md).
"""
