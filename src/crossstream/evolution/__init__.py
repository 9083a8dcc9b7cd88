"""A changed application takes over the state of the one before: what is kept, rebuilt, and sent."""
