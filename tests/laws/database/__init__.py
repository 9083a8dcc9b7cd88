"""A database, a connector of Debezium that reads it, and the topics that it fills: all in memory.

Who tests what an application makes of such topics knows what each transaction left in the tables:

    shop = Database(("accounts", "entries"))              tables.py: transactions, and what is true after each
    shop.commit(put("accounts", id=1, balance=0))
    connector = Connector(shop, partitions=2)             connector.py: what Debezium 3.6 writes for Postgres
    connector.snapshot()
    shop.commit(put("accounts", id=1, balance=5), put("entries", id=7, account_id=1, amount=5))
    connector.stream()                                    or some records, `heartbeat`, `incremental`, `restart`
    topics = Shown(world, connector)                      shown.py: file topics, each partition as far as you say
    topics.show("shop.transaction", 0)
    topics.show_all()
    assert read(…) == shop.states[2]["accounts"]          after two transactions

`compacted` leaves out what Kafka's compaction would. `histories.py` has random ones of all this, for laws.
"""
