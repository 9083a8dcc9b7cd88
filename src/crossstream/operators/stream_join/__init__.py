"""KStream–KStream join in a window of time.

    law    the result holds joiner(left, right) for each pair of records with one key and timestamps close enough, once,
           given by the one that arrives second; and of each record of an outer side that finds no partner one row alone

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> views, clicks = builder.stream("views", words), builder.stream("clicks", words)
    >>> views.left_join(clicks, lambda view, click: [view, click], cs.JoinWindows.of("10 seconds"))
    <KStream views.left_join(clicks)>

`partners.py`: windows, and the search for partners; `records.py`: what is kept and waits; `results.py`: events in their
order; `kernel.py`: the join of a batch. Page: docs/joins/stream-stream.md.
Rules: semantics 2.1 (docs/semantics.md).
"""
