"""Batches of changes as columns, and functions on them. No files, no clock, no Spark.

`changes.py` is a batch of changes; `values.py` a column that is decoded at most once. `functions.py` is what the user
passed, and `evaluate.py` calls it on columns. `order.py` and `hashing.py` say in which order rows come and where they
go.
"""
