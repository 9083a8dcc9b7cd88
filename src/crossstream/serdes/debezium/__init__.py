"""Change events of databases as rows: what Debezium writes, with and without its envelope.

`changes.py`: what a batch of records does to the rows. `envelopes.py`: events in JSON; `avro.py`: in Avro.
`convert.py`: columns as a connector writes them, to columns of the declared types. Page: docs/debezium.md. Rules:
semantics 3.17 (docs/semantics.md).
"""
