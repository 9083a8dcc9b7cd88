"""Source transactions: batches of tables that are cut together, each where the database stood (decision 0043).

Before a batch is planned, its events are read ahead: of each only which transaction it is of (`ahead.py`). The
transaction topic says how many events of which tables each transaction has (`ends.py`). A batch ends behind the last
transaction of which, and of all before which, all events are there (`cutting.py`). A snapshot counts as one transaction
(`snapshots.py`). `together.py` is what the planner of sources asks.
"""
