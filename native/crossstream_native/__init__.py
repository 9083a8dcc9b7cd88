"""The native part of crossstream: records between librdkafka and Arrow without a Python object for each.

It has no interface for people: `crossstream` uses it where it is installed.
"""

from pathlib import Path

LIBRARY = Path(__file__).with_name("libcrossstream_native.so")
"""A shared library with the functions of ``src/native.h``; it is loaded by `ctypes`."""
