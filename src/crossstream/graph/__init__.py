"""The logical plan as frozen data: nodes, their names, validation, traversal, and pictures of it. Nothing runs here."""
