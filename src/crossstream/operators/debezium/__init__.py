"""Change events of a database as a table: completes each row from the row before it.

    law    in any cut into batches, the table is what the database holds after the last event that was read: a value
           that an event leaves out is the value before, and an event from before the kept one changes nothing

    >>> from dataclasses import dataclass
    >>> import crossstream as cs
    >>> @dataclass
    ... class Note:
    ...     id: int
    ...     text: str | None = None
    >>> cs.StreamsBuilder().table("shop.public.notes", source=cs.debezium(Note, ordered_by="source.lsn"))
    <KTable shop.public.notes>

`kernel.py`: what a batch of events makes of the rows before. `snapshots.py`: which rows the end of a snapshot deletes.
`runner.py`: the step in a task. `plan.py`: its round and store. Reading events: `serdes/debezium`. Page:
docs/debezium.md. Rules: semantics 3.17 and 3.20 (docs/semantics.md).
"""
