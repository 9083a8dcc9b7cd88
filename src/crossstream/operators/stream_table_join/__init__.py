"""KStream–KTable join.

    law    each stream record gives joiner(its value, the row of its key), with the row as it was when the record
           arrived: after every change that came before it, in this batch or an earlier one, and none that came
           later. Without a row an inner join gives nothing, a left join joiner(its value, None)

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder, words = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> builder.stream("visits", words).join(builder.table("users", words), lambda visit, user: [visit, user])
    <KStream visits.join(users)>

`kernel.py`: the join, and records that wait for the table (grace). One round. Page:
docs/joins/stream-table.md.
Rules: semantics 2.3 (docs/semantics.md).
"""
