"""Computes results again from the topics, in this process: to check them, and to say which records made a row.

`replay.py` runs a plan over records in memory. `verify.py` compares a state folder with what its topics give,
`shadow.py` a topic of another application. `why.py` finds the records behind a row, `trace.py` looks
for them backwards, and `reason.py` is the answer.
"""
