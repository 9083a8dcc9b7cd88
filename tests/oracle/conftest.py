from __future__ import annotations

from tests.oracle.fixtures import oracle

__all__ = ["oracle"]
