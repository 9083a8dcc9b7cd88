"""The built-in aggregates (`agg`), a column at a time.

`parts.py`: what an aggregate is made of, with state of its own, and where each part is. `composition.py`: the parts of
what was asked for. `columns.py`: how the rows of a batch change the aggregates of their groups. `group_rows.py`: the
rows of the groups of a table. `contents.py`: what is in windows whose bounds depend on the records.
"""
