"""The tables of the specification, as data. Every engine runs them: the reference, the driver, Spark.

Values are text; a joiner gives ``left,right`` with ∅ for a missing side.
"""

from tests.conformance.case import Script
from tests.conformance.scripts import (
    batches,
    chains,
    decisions,
    foreign_key,
    stream_global,
    stream_stream,
    stream_table,
    table_table,
    views_clicks,
)

TABLE_SCRIPTS: list[Script] = [
    *table_table.SCRIPTS,
    *foreign_key.SCRIPTS,
    *chains.SCRIPTS,
    *views_clicks.TABLES,
    *decisions.TABLES,
]
STREAM_SCRIPTS: list[Script] = [
    *stream_stream.SCRIPTS,
    *stream_table.SCRIPTS,
    *stream_global.SCRIPTS,
    *views_clicks.STREAMS,
    *decisions.STREAMS,
]
SCRIPTS = TABLE_SCRIPTS + STREAM_SCRIPTS
BATCH_SCRIPTS: list[Script] = [*batches.SCRIPTS]
