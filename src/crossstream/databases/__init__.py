"""Tables in a database: Postgres. Each batch is one transaction, which marks in the database that it is there.

`connection.py`: what a DSN says, and the connection. `types.py`: types of Postgres and of columns. `copying.py`: rows
as the text that COPY reads. `catalog.py`: what a table is, and the statements that make one. `postgres.py`: a batch.
`parsing.py`, `reading.py`: the rows of a table, read back.

How the rows of a batch get here, and what a start does with a batch that was being written: `lakehouse`.
"""
