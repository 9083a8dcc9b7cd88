"""Aggregation in windows: which of them a record belongs to, what becomes of them, when they close.

    law    after any number of batches, cut anywhere, each window has what the functions give for its records one after
           the other; a record changes no window that has closed

`windows.py`: the verbs that windows of all kinds share: open, merge, close, notify at. `time_windows.py`, `sliding.py`,
`sessions.py`: what each kind does with records. `closing.py`: when windows close, and how long they stay. `log.py`: the
changes of windows whose bounds depend on the records. `store.py`: what is kept of windows. `kinds.py`: which kind of
windows is where. `runner.py`: the step in a task. `plan.py`: its round and its store. What applies records to
aggregates is that of `operators/aggregate/`. Rules: semantics 3.4 (docs/semantics.md). Page: docs/aggregations.md.
"""
