"""filter, map and the like, on streams and on tables; merge, branch and re-keying.

    law    the result of a record does not depend on the other records of the batch

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream("words", words).filter(lambda word: word != "").map_values(str.upper)
    <KStream words.filter.map_values>

`kernel.py` has a pure function for each operator, `runner.py` picks it, `plan.py` says in which round it runs. Page:
docs/java-to-python.md.
Rules: semantics 3.2 to 3.4 (docs/semantics.md).
"""
