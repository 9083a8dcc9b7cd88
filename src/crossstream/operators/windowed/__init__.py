"""Windows: which of them a record belongs to, and when they close. Source: semantics 3.4.

`windows.py`: time windows, and the changes of those whose bounds depend on the records. `sliding.py`: sliding windows.
`sessions.py`: sessions.
"""
