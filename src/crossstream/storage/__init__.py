"""State as sorted, immutable runs of Arrow columns, with one manifest for each store, partition and batch.

A store is a small LSM tree: `sorted_run.py` is a file of rows, `snapshot.py` what a batch sees, `compaction.py` merges
runs, `manifest.py` names the runs of a version, `commit_log.py` says which versions belong together, and `vacuum.py`
deletes the rest. `files.py` and `remote.py` are where they are kept: a folder, or an object store.
"""
