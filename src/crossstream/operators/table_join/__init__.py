"""KTable–KTable join by primary key.

    law    the result holds, for each key, joiner(left row, right row), for the keys that are in both tables
           (inner), in the left one (left) or in either (outer)

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.table("names", words).join(builder.table("towns", words), lambda name, town: f"{name} of {town}")
    <KTable names.join(towns)>

`plan.py`: both tables in one round; `kernel.py`: events of both sides in arrival order. Page: docs/table-table-join.md.
Rules: semantics 2.2 (docs/semantics.md).
"""
