"""Processors of one's own: an object that gets every record, with stores and timers; and functions of whole batches.

    law    the records of a state partition come one after the other, in order of arrival; what `process` forwards and
           keeps is the same for any cut of the input into batches, as long as it keeps all it remembers in its stores

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> class Numbered:
    ...     def init(self, context):
    ...         self.context, self.seen = context, context.store("seen")
    ...     def process(self, record):
    ...         count = (self.seen.get(record.key) or 0) + 1
    ...         self.seen.put(record.key, count)
    ...         self.context.forward(record.key, f"{count}: {record.value}")
    >>> builder, text = cs.StreamsBuilder(), cs.Consumed(key=serdes.string(), value=serdes.string())
    >>> seen = cs.KeyValueStore("seen", key=serdes.string(), value=serdes.int64())
    >>> builder.stream("words", text).process_values(Numbered, stores=[seen])
    <KStream words.process_values>

`context.py`: what a processor can do, and when its timers fire. `stores.py`: its stores within a batch. `runner.py`:
the steps in a task. `batches.py`: those of functions of record batches. `plan.py`: their round and stores. Rules:
semantics 3.15 (docs/semantics.md), KIP-820. Page: docs/processors.md.
"""
