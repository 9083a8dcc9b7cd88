"""The graph of a topology as frozen data: its nodes, their names, its pictures and its plan."""
