"""JSON: with declared types as columns, without them as the value it is."""
