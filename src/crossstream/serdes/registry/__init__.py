"""Schema registries: their client, and values that begin with the number of their schema."""
