"""The public vocabulary of a topology: builder, streams, tables, options. Nothing runs here.

A method checks its arguments, raises `TopologyError` in the user's line, adds a node to the draft and returns a handle
to it. Start with `builder.py`; `stream.py` and `table.py` have the operators; `types.py` the types of expressions.
"""
