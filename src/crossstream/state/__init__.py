"""State as sorted, immutable runs of Arrow columns, with one manifest per store, partition and batch."""
