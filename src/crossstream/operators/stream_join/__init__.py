"""KStream–KStream join in a window of time.

    law    the result holds joiner(left, right) @ max(left.ts, right.ts) for each pair of records with one key and
           timestamps l.ts − before ≤ r.ts ≤ l.ts + after, once, given by the one that arrives second; and of each
           record of an outer side that finds no partner joiner(left, None) or joiner(None, right), once, at its own
           timestamp: when its window has closed or, in eager mode, at once

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> views, clicks = builder.stream("views", words), builder.stream("clicks", words)
    >>> views.left_join(clicks, lambda view, click: [view, click], cs.JoinWindows.of("10 seconds"))
    <KStream views.left_join(clicks)>

`partners.py`: windows, and the search for partners; `records.py`: what is kept and waits, and results in their order;
`kernel.py`: the join of a batch. Page: docs/joins/stream-stream.md.
Rules: semantics 2.1 (docs/semantics.md).
"""
