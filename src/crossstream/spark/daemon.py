"""The daemon that Spark forks its Python workers from, with everything imported that a worker needs.

A fork of a process that has imported pyarrow and Polars starts in milliseconds; importing them again in every
worker takes about a second. No thread pool of ours may exist before the fork: only imports happen here. They start some
threads of OpenBLAS and jemalloc, which deal with forks, and one of Polars that clears away what its streaming engine
spills, which is not used here. Tasks are cheap as in `tasks`.
"""

from __future__ import annotations

import gc
import warnings

from crossstream.spark.tasks import keep_unchanged_archives

keep_unchanged_archives()

import polars  # noqa: E402, F401
import pyarrow.compute  # noqa: E402, F401
import pyspark.daemon  # noqa: E402
import pyspark.worker  # noqa: E402

import crossstream.spark.streams  # noqa: E402, F401

if __name__ == "__main__":
    # PySpark leaves the files of its sockets, which have numbers for names, to the garbage collector, and the socket
    # on which the daemon waits to its end.
    warnings.filterwarnings("ignore", r"unclosed file <_io\.Buffered\w+ name=\d+>", ResourceWarning)
    warnings.filterwarnings(
        "ignore", r"unclosed <socket\.socket fd=\d+, .* laddr=\S+\.sock>", ResourceWarning
    )
    # Python 3.12 and later warn of the threads that imports have started, at every fork.
    warnings.filterwarnings("ignore", r"This process .* is multi-threaded, use of fork", DeprecationWarning)
    # Spark's worker loop collects garbage after every task: with all these modules loaded that takes 50 ms
    # of core time, unless what is here by now is put aside for good (decision 0010).
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
