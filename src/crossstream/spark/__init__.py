"""The engine on Spark. The only package that imports pyspark."""

from crossstream.spark.streams import SparkStreams

__all__ = ["SparkStreams"]
