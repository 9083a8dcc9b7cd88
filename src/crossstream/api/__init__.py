"""The public vocabulary of a topology: builder, streams, tables, options. Nothing runs here.

A method checks its arguments, raises `TopologyError` in the user's line, adds a node to the draft and returns a handle
to it. Start with `builder.py`; `stream.py` and `table.py` have the operators, `joining_stream.py` and
`joining_table.py` their joins, `sinks.py` the ends of a stream; `types.py` has the types of expressions.
"""
