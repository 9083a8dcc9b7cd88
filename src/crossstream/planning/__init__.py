"""From the graph to rounds: which operator runs in which round, which stores it has, what is exchanged in between.

`planner.py` asks each operator where it goes (its `plan.py`); the result is a `Plan` of steps, flows, exchanges and
stores (`plan.py`, `steps.py`).
"""
