"""Table-table joins by primary key, record by record."""

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}

TT_1 = scripts(
    "TT-1",
    "table-table",
    {"inner": {"type": "inner"}, "left": {"type": "left"}, "outer": {"type": "outer"}},
    joiner=JOINER,
    left_versioned_ms=None,
    right_versioned_ms=None,
    # rows 3, 9: redundant tombstones and repeats; 6, 7: nothing is de-duplicated; 14, 15, 17: timestamps
    table="""
| #  | input    | inner    | left     | outer    |
|----|----------|----------|----------|----------|
| 1  | L k=A@1  |          | k=A,∅@1  | k=A,∅@1  |
| 2  | L k=A@2  |          | k=A,∅@2  | k=A,∅@2  |
| 3  | R k=∅@3  | k=∅@3    | k=A,∅@3  | k=A,∅@3  |
| 4  | R k=p@4  | k=A,p@4  | k=A,p@4  | k=A,p@4  |
| 5  | L k=B@5  | k=B,p@5  | k=B,p@5  | k=B,p@5  |
| 6  | R k=q@6  | k=B,q@6  | k=B,q@6  | k=B,q@6  |
| 7  | R k=q@7  | k=B,q@7  | k=B,q@7  | k=B,q@7  |
| 8  | L k=∅@8  | k=∅@8    | k=∅@8    | k=∅,q@8  |
| 9  | L k=∅@9  | k=∅@9    | k=∅@9    | k=∅,q@9  |
| 10 | R k=s@10 |          |          | k=∅,s@10 |
| 11 | R k=∅@11 |          |          | k=∅@11   |
| 12 | R k=∅@12 |          |          |          |
| 13 | R k=t@20 |          |          | k=∅,t@20 |
| 14 | L k=C@13 | k=C,t@20 | k=C,t@20 | k=C,t@20 |
| 15 | R k=u@14 | k=C,u@14 | k=C,u@14 | k=C,u@14 |
| 16 | L k=D@30 | k=D,u@30 | k=D,u@30 | k=D,u@30 |
| 17 | R k=∅@15 | k=∅@30   | k=D,∅@30 | k=D,∅@30 |
| 18 | L m=E@16 |          | m=E,∅@16 | m=E,∅@16 |
| 19 | R n=v@17 |          |          | n=∅,v@17 |
| 20 | L ∅=x@18 |          |          |          |
| 21 | R ∅=y@19 |          |          |          |
|    | dropped  | 2        | 2        | 2        |
""",
)

BOTH = {"left_versioned_ms": 1000, "right_versioned_ms": 1000}

TT_2 = scripts(
    "TT-2",
    "table-table",
    {
        "inner both": {"type": "inner", **BOTH},
        "left both": {"type": "left", **BOTH},
        "outer both": {"type": "outer", **BOTH},
        "inner L only": {"type": "inner", "left_versioned_ms": 1000, "right_versioned_ms": None},
        "inner R only": {"type": "inner", "left_versioned_ms": None, "right_versioned_ms": 1000},
    },
    joiner=JOINER,
    table="""
| #  | input    | inner both | left both | outer both | inner L only | inner R only |
|----|----------|------------|-----------|------------|--------------|--------------|
| 1  | L k=A@1  |            | k=A,∅@1   | k=A,∅@1    |              |              |
| 2  | L k=A@2  |            | k=A,∅@2   | k=A,∅@2    |              |              |
| 3  | R k=∅@3  | k=∅@3      | k=A,∅@3   | k=A,∅@3    | k=∅@3        | k=∅@3        |
| 4  | R k=p@4  | k=A,p@4    | k=A,p@4   | k=A,p@4    | k=A,p@4      | k=A,p@4      |
| 5  | L k=B@5  | k=B,p@5    | k=B,p@5   | k=B,p@5    | k=B,p@5      | k=B,p@5      |
| 6  | R k=q@6  | k=B,q@6    | k=B,q@6   | k=B,q@6    | k=B,q@6      | k=B,q@6      |
| 7  | R k=q@7  | k=B,q@7    | k=B,q@7   | k=B,q@7    | k=B,q@7      | k=B,q@7      |
| 8  | L k=∅@8  | k=∅@8      | k=∅@8     | k=∅,q@8    | k=∅@8        | k=∅@8        |
| 9  | L k=∅@9  | k=∅@9      | k=∅@9     | k=∅,q@9    | k=∅@9        | k=∅@9        |
| 10 | R k=s@10 |            |           | k=∅,s@10   |              |              |
| 11 | R k=∅@11 |            |           | k=∅@11     |              |              |
| 12 | R k=∅@12 |            |           |            |              |              |
| 13 | R k=t@20 |            |           | k=∅,t@20   |              |              |
| 14 | L k=C@13 | k=C,t@20   | k=C,t@20  | k=C,t@20   | k=C,t@20     | k=C,t@20     |
| 15 | R k=u@14 |            |           |            | k=C,u@14     |              |
| 16 | L k=D@30 | k=D,t@30   | k=D,t@30  | k=D,t@30   | k=D,u@30     | k=D,t@30     |
| 17 | R k=∅@15 |            |           |            | k=∅@30       |              |
| 18 | L m=E@16 |            | m=E,∅@16  | m=E,∅@16   |              |              |
| 19 | R n=v@17 |            |           | n=∅,v@17   |              |              |
| 20 | L ∅=x@18 |            |           |            |              |              |
| 21 | R ∅=y@19 |            |           |            |              |              |
|    | dropped  | 4          | 4         | 4          | 2            | 4            |
""",
)

SCRIPTS = [*TT_1, *TT_2]
