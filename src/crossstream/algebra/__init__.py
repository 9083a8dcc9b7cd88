"""The joins and what they stand on: pure functions over columns.

A join is a pure function from changes on one side, and the state of the other, to changes of the result.
"""
