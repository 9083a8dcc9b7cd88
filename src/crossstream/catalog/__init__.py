"""The one room that names all operators: who plans each node, and who runs each step."""
