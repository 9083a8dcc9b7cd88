"""Rows that expire: a row of a table that was not written for so long is deleted, with its effects downstream.

    law    the table, and what is made of it, is that of a topic in which a row of time t has the delete k=∅@t+ttl, with
           the record that brings the clock to t + ttl or past it, if the row is still that of t then

The clock is stream time, or that on the wall. A record that has expired when it comes is a delete: the table would have
deleted its row at once.

    >>> import crossstream as cs
    >>> builder = cs.StreamsBuilder()
    >>> builder.table("baskets", value=dict, materialized=cs.Materialized(store="baskets", ttl="30 days"))
    <KTable baskets>

`kernel.py`: the deletes of a batch. `runner.py`: the step in a task, which finds the rows that are due in the store of
the table. `plan.py`: the step before the one that keeps the table. Rules: semantics 3.21 (docs/semantics.md).
Page: docs/state.md.
"""
