"""The documentation, held to its word: examples run, links lead somewhere, codes and formats are as told.

What a fence of a page says after its language decides what happens to it:

    python          runs, in the order of the page; the blocks of a page share their names
    python spark    needs Spark: the page runs once more, whole, in a process of its own
    sh spark        likewise, through bash, with ``crossstream`` on the path
    python no-run   is compiled only: it needs a Kafka cluster, or runs for ever
"""
