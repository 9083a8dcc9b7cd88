"""The same join as a Spark user writes it without us: a change feed, ``foreachBatch`` and ``MERGE`` into Delta."""
