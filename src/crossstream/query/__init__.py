"""Interactive queries: reading committed state, from the application or from any other process."""
