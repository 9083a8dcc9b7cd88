"""Writes results to topics, and to the driver as DataFrames.

    law    a batch writes every result once, in the order in which it was made

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream("words", words).to("copies")
    >>> [node.topic for node in builder.build() if node.name == "words.to(copies)"]
    ['copies']

`plan.py`: which sinks write together. `runner.py`: results in wire form, to a topic or to the driver, and the order of
records that several sinks write to one topic. Page: docs/restarts-and-guarantees.md.
Rules: semantics 3.12 (docs/semantics.md).
"""
