"""One batch through the rounds of a plan: the same code in the test driver and in Spark's workers.

`task.py` is a round over one partition; `shuffle_codec.py` packs what travels between rounds; `scheduler.py` decides
what the next batch reads; `bad_records.py` what happens to records that fail; `dead_letters.py` what is kept of them.
"""
