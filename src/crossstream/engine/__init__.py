"""One batch through the rounds of a plan: the same code in the test driver and in Spark's workers."""
