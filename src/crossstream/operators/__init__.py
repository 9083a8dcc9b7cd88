"""The operators, one folder for each.

| file | what it has |
|---|---|
| `__init__.py` | the law, an example, the page |
| `plan.py` | in which rounds the operator runs and what it keeps |
| `runner.py` | how it runs in a task: takes pieces of its inputs, opens its stores, emits results |
| `kernel.py` | the pure function: (state, changes) → (state changes, result changes) |

To add an operator, copy `deduplicate`: a node in `graph/nodes.py`, a step in `planning/steps.py`, these four files,
and a line each in `catalog/planners.py` and `catalog/runners.py`. What the code weighs, and why: decision 0035.
"""
