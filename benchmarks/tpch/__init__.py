"""`crossstream bench tpch`: TPC-H's tables change, and six of its queries are kept up to date; beside peers."""

from benchmarks.tpch.bench import main

__all__ = ["main"]
