"""Foreign-key joins, record by record. A left value is ``fk;payload``, with ``-`` for a null foreign key."""

from typing import Any

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
EXTRACTOR = {"kind": "split", "sep": ";", "index": 0, "null_if": "-"}
KINDS = {"inner": {"type": "inner"}, "left": {"type": "left"}}
PLAIN: dict[str, Any] = {"left_versioned_ms": None, "right_versioned_ms": None}
VERSIONED: dict[str, Any] = {"left_versioned_ms": 1000, "right_versioned_ms": 1000}

# Rows 7 and 10, inner: a foreign key that becomes null retracts, one that comes back joins (8.13). Left:
# one result per input (8.12). Rows 11, 12: the right record's timestamp alone (8.15), and equal right
# rows are answered again (8.17). Row 22: two referring rows, in byte order of their keys.
FK_1 = scripts(
    "FK-1",
    "table-table-fk",
    KINDS,
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    **PLAIN,
    table="""
| #  | input      | inner                  | left                   |
|----|------------|------------------------|------------------------|
| 1  | R 1=p@10   |                        |                        |
| 2  | L k=1;a@5  | k=1;a,p@10             | k=1;a,p@10             |
| 3  | L k=1;b@20 | k=1;b,p@20             | k=1;b,p@20             |
| 4  | L k=1;b@21 | k=1;b,p@21             | k=1;b,p@21             |
| 5  | L k=2;a@22 | k=∅@22                 | k=2;a,∅@22             |
| 6  | L k=2;b@23 |                        | k=2;b,∅@23             |
| 7  | L k=-;c@24 | k=∅@24                 | k=-;c,∅@24             |
| 8  | L k=-;d@25 |                        | k=-;d,∅@25             |
| 9  | R 2=late@1 |                        |                        |
| 10 | L k=1;e@26 | k=1;e,p@26             | k=1;e,p@26             |
| 11 | R 1=q@3    | k=1;e,q@3              | k=1;e,q@3              |
| 12 | R 1=q@4    | k=1;e,q@4              | k=1;e,q@4              |
| 13 | R 1=∅@30   | k=∅@30                 | k=1;e,∅@30             |
| 14 | R 1=∅@31   | k=∅@31                 | k=1;e,∅@31             |
| 15 | L k=-;f@32 | k=∅@32                 | k=-;f,∅@32             |
| 16 | L k=∅@33   |                        | k=∅@33                 |
| 17 | L k=∅@34   |                        |                        |
| 18 | L n=-;z@40 |                        | n=-;z,∅@40             |
| 19 | L n=∅@41   |                        | n=∅@41                 |
| 20 | L b=3;x@42 |                        | b=3;x,∅@42             |
| 21 | L a=3;y@43 |                        | a=3;y,∅@43             |
| 22 | R 3=s@44   | a=3;y,s@44; b=3;x,s@44 | a=3;y,s@44; b=3;x,s@44 |
| 23 | L b=∅@45   | b=∅@45                 | b=∅@45                 |
| 24 | L ∅=1;q@46 |                        |                        |
| 25 | R ∅=q@47   |                        |                        |
|    | dropped    | 6                      | 2                      |
""",
)

# Row 8, left: the one tombstone carries the left record's timestamp (8.12).
FK_2 = scripts(
    "FK-2",
    "table-table-fk",
    {
        "inner both versioned": {"type": "inner", **VERSIONED},
        "left both versioned": {"type": "left", **VERSIONED},
        "inner unversioned": {"type": "inner", **PLAIN},
    },
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    table="""
| #  | input       | inner both versioned | left both versioned | inner unversioned |
|----|-------------|----------------------|---------------------|-------------------|
| 1  | R 1=p@10    |                      |                     |                   |
| 2  | L k=1;a@5   | k=1;a,p@10           | k=1;a,p@10          | k=1;a,p@10        |
| 3  | L k=2;old@3 |                      |                     | k=∅@3             |
| 4  | L k=1;b@6   | k=1;b,p@10           | k=1;b,p@10          | k=1;b,p@10        |
| 5  | R 1=older@9 |                      |                     | k=1;b,older@9     |
| 6  | R 1=∅@8     |                      |                     | k=∅@8             |
| 7  | R 1=q@11    | k=1;b,q@11           | k=1;b,q@11          | k=1;b,q@11        |
| 8  | L k=∅@7     | k=∅@11               | k=∅@7               | k=∅@11            |
| 9  | L k=1;c@6   |                      |                     | k=1;c,q@11        |
| 10 | L k=1;d@12  | k=1;d,q@12           | k=1;d,q@12          | k=1;d,q@12        |
| 11 | R 1=∅@13    | k=∅@13               | k=1;d,∅@13          | k=∅@13            |
| 12 | R 1=s@12    |                      |                     | k=1;d,s@12        |
|    | dropped     | 5                    | 5                   | 0                 |
""",
)

# The table of KIP-213, row by row. At step 5 the joiner is not called.
KIP: dict[str, Any] = {
    "joiner": {"template": "({left},{right})", "missing": "∅"},
    "fk_extractor": {"kind": "split", "sep": "→", "index": 1},
    **PLAIN,
}
KIP_213 = scripts(
    "KIP-213",
    "table-table-fk",
    KINDS,
    **KIP,
    table="""
| # | input      | inner          | left           |
|---|------------|----------------|----------------|
| 0 | R 1=foo@0  |                |                |
| 1 | L k=k→1@1  | k=(k→1,foo)@1  | k=(k→1,foo)@1  |
| 2 | L k=k→2@2  | k=∅@2          | k=(k→2,∅)@2    |
| 3 | L k=k→3@3  | k=∅@3          | k=(k→3,∅)@3    |
| 4 | R 3=bar@4  | k=(k→3,bar)@4  | k=(k→3,bar)@4  |
| 5 | L k=∅@5    | k=∅@5          | k=∅@5          |
| 6 | L k=k→1@6  | k=(k→1,foo)@6  | k=(k→1,foo)@6  |
| 7 | L q=q→10@7 |                | q=(q→10,∅)@7   |
| 8 | R 10=baz@8 | q=(q→10,baz)@8 | q=(q→10,baz)@8 |
|   | dropped    | 0              | 0              |
""",
)

# The variant of Kafka's manual: a second row refers to 10 before it comes.
KIP_213_TWO = scripts(
    "KIP-213 with r",
    "table-table-fk",
    KINDS,
    **KIP,
    table="""
| # | input      | inner                          | left                           |
|---|------------|--------------------------------|--------------------------------|
| 1 | L q=q→10@1 |                                | q=(q→10,∅)@1                   |
| 2 | L r=r→10@2 |                                | r=(r→10,∅)@2                   |
| 3 | R 10=baz@3 | q=(q→10,baz)@3; r=(r→10,baz)@3 | q=(q→10,baz)@3; r=(r→10,baz)@3 |
""",
)

# The KIP's "original value hash": the same foreign key, a new row. The blog's race: A refers to X, then
# to Y.
STALE_ANSWERS = scripts(
    "KIP-213 stale answers",
    "table-table-fk",
    KINDS,
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    **PLAIN,
    table="""
| # | input     | inner       | left        |
|---|-----------|-------------|-------------|
| 1 | R Y=bar@0 |             |             |
| 2 | L A=Y;1@1 | A=Y;1,bar@1 | A=Y;1,bar@1 |
| 3 | L A=Y;2@2 | A=Y;2,bar@2 | A=Y;2,bar@2 |
| 4 | R X=old@3 |             |             |
| 5 | L A=X;3@4 | A=X;3,old@4 | A=X;3,old@4 |
| 6 | L A=Y;4@5 | A=Y;4,bar@5 | A=Y;4,bar@5 |
| 7 | R X=new@6 |             |             |
""",
)

SCRIPTS = [*FK_1, *FK_2, *KIP_213, *KIP_213_TWO, *STALE_ANSWERS]
