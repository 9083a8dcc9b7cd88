"""The engine on Spark. The only package that imports pyspark.

Workers of Spark that only read a store do not load the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossstream.spark.registering import register
    from crossstream.spark.streams import SparkStreams

__all__ = ["SparkStreams", "register"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads a public name when it is first used."""
        if name == "SparkStreams":
            from crossstream.spark.streams import SparkStreams

            return SparkStreams
        if name == "register":
            from crossstream.spark.registering import register

            return register
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
