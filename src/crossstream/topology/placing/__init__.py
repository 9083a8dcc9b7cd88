"""How each operator is placed in rounds; `planner.py` has what they share."""
