"""Deduplication: the first record of each identity in every stretch of stream time.

    law    a record comes out unless one with the same identity came out before it, not more than ``within`` earlier or
           later by its timestamp, and not more than ``within`` before stream time

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> text = cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> cs.StreamsBuilder().stream("clicks", text).deduplicate("1 minute")
    <KStream clicks.deduplicate>

`kernel.py`: which records of a batch come out. `runner.py`: the steps in a task. `plan.py`: their rounds and the store.
Rules: semantics 3.14 (docs/semantics.md), KIP-655. Page: docs/processors.md.
"""
