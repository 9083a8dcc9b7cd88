"""Opens the versions of a lake table by its format. The libraries of a format are imported when one is opened."""

from __future__ import annotations

from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.versions import LakeVersions


def open_versions(table: LakeTable) -> LakeVersions:
    """The versions of a table. Raises `ConfigError` CS-201 without the package for its format."""
    if table.form == "iceberg":
        from crossstream.lakehouse.iceberg_source import IcebergVersions

        return IcebergVersions(table)
    from crossstream.lakehouse.delta_source import DeltaVersions

    return DeltaVersions(table)
