"""Suppression: the changes of a table come out later, and fewer of them.

    law    until windows close: of each window the last row that it had when it closed, once, and no deletes
           until a time limit: a row comes out when stream time is that much past the change that brought it into the
           buffer; with its latest value, and the timestamp of that

Stream time is the largest timestamp of the changes that have come here; every key moves it. What comes out is the same
for any cut of the input into batches: each change is passed through the buffer in order of arrival.

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, text = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> counts = builder.stream("words", text).group_by_key().windowed_by("1 minute").count()
    >>> counts.suppress(cs.Suppressed.until_window_closes())
    <KTable words.count.suppress>

`kernel.py`: which changes come out, and when. `runner.py`: the step in a task, and the store of those that wait.
`plan.py`: its round and its store. Rules: semantics 3.13 (docs/semantics.md), KIP-328. Page: docs/suppression.md.
"""
