"""Stream-global joins, record by record. G is the global table."""

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}

# The lookup key is the stream's value; one that begins with "-" maps to null. Row 4, left: a null mapped
# key is no match, whatever the stream key (8.10). Row 12: the table row is newer than the stream record
# and still joins.
SG_1 = scripts(
    "SG-1",
    "stream-globaltable",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    key_mapper={"kind": "value", "null_prefix": "-"},
    table_versioned_ms=None,
    table="""
| #  | input     | inner    | left     |
|----|-----------|----------|----------|
| 1  | G K=gv@0  |          |          |
| 2  | L k=K@1   | k=K,gv@1 | k=K,gv@1 |
| 3  | L ∅=K@2   | ∅=K,gv@2 | ∅=K,gv@2 |
| 4  | L k=-a@3  |          | k=-a,∅@3 |
| 5  | L ∅=-b@4  |          | ∅=-b,∅@4 |
| 6  | L k=∅@5   |          |          |
| 7  | L k=M@6   |          | k=M,∅@6  |
| 8  | G ∅=zz@7  |          |          |
| 9  | G K=∅@8   |          |          |
| 10 | L k=K@9   |          | k=K,∅@9  |
| 11 | G M=gm@10 |          |          |
| 12 | L j=M@1   | j=M,gm@1 | j=M,gm@1 |
|    | dropped   | 4        | 2        |
""",
)

SCRIPTS = [*SG_1]
