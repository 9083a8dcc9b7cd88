"""Tables in a lakehouse: Delta and Iceberg. Each batch is one commit of the table, which says which batch it is.

1. The records of a batch come to the driver, which keeps them as rows in files of the state.
2. It notes in the batch log what the batch writes, with its commit. From here on the batch does not run again.
3. It writes the rows into each table: merged by key, or appended. The same commit of the table has the mark: the state
   and the number of the batch.
4. It commits the batch.

A start that finds a note without its commit writes what no table's mark says is there. So tables, topics and stores
get the same rows of a batch, also if a function would give others in a second run.
"""
