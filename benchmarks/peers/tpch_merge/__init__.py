"""TPC-H's queries as a Spark user keeps them up to date without us: ``foreachBatch`` and ``MERGE`` into Delta."""
