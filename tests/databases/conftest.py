"""The fixtures of these tests."""

from tests.databases.tables import lives, server, tables

__all__ = ["lives", "server", "tables"]
