"""Chains of joins, and tables that reach a join by several paths: one change per key and record (8.8)."""

from typing import Any

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
PLAIN: dict[str, Any] = {"left_versioned_ms": None, "right_versioned_ms": None}
EXTRACTOR = {"kind": "split", "sep": ";", "index": 0, "null_if": "-"}


def join(id: str, operator: str, type: str, left: str, right: str, **more: Any) -> dict[str, Any]:
    ends = {"left": left, "right": right}
    return {"id": id, "operator": operator, "type": type, **ends, "joiner": JOINER, **more}


def with_itself(type: str) -> dict[str, Any]:
    return {"type": type, "joins": [join("j", "table-table", type, "left", "left")]}


# Kafka's inner join never retracts here, and updates come out twice. Rows 4 and 5: no row before, none
# after.
ITSELF = scripts(
    "a table joined with itself",
    "table-table",
    {kind: with_itself(kind) for kind in ("inner", "left", "outer")},
    joiner=JOINER,
    **PLAIN,
    table="""
| # | input   | inner   | left    | outer   |
|---|---------|---------|---------|---------|
| 1 | L k=A@1 | k=A,A@1 | k=A,A@1 | k=A,A@1 |
| 2 | L k=B@5 | k=B,B@5 | k=B,B@5 | k=B,B@5 |
| 3 | L k=∅@3 | k=∅@3   | k=∅@3   | k=∅@3   |
| 4 | L k=∅@4 |         |         |         |
| 5 | L m=∅@4 |         |         |         |
| 6 | L k=C@2 | k=C,C@2 | k=C,C@2 | k=C,C@2 |
| 7 | L ∅=D@6 |         |         |         |
|   | dropped | 1       | 1       | 1       |
""",
)


def twice(first: str, second: str) -> dict[str, Any]:
    chain = [
        join("j1", "table-table", first, "left", "right"),
        join("j2", "table-table", second, "j1", "right"),
    ]
    return {"type": second, "joins": chain}


# The right table feeds both joins. Row 7: Kafka's inner-inner emits nothing, and the row stays.
TWICE = scripts(
    "right joined twice",
    "table-table",
    {
        "inner inner": twice("inner", "inner"),
        "inner outer": twice("inner", "outer"),
        "left inner": twice("left", "inner"),
        "outer left": twice("outer", "left"),
        "outer outer": twice("outer", "outer"),
    },
    joiner=JOINER,
    **PLAIN,
    # row 6: the timestamp of j1's row is that of the newer left row
    table="""
| # | input   | inner inner | inner outer | left inner | outer left | outer outer |
|---|---------|-------------|-------------|------------|------------|-------------|
| 1 | L k=A@1 |             |             |            | k=A,∅,∅@1  | k=A,∅,∅@1   |
| 2 | R k=p@2 | k=A,p,p@2   | k=A,p,p@2   | k=A,p,p@2  | k=A,p,p@2  | k=A,p,p@2   |
| 3 | L k=∅@3 | k=∅@3       | k=∅,p@3     | k=∅@3      | k=∅,p,p@3  | k=∅,p,p@3   |
| 4 | R k=q@4 |             | k=∅,q@4     |            | k=∅,q,q@4  | k=∅,q,q@4   |
| 5 | L k=B@9 | k=B,q,q@9   | k=B,q,q@9   | k=B,q,q@9  | k=B,q,q@9  | k=B,q,q@9   |
| 6 | R k=s@5 | k=B,s,s@9   | k=B,s,s@9   | k=B,s,s@9  | k=B,s,s@9  | k=B,s,s@9   |
| 7 | R k=∅@6 | k=∅@9       | k=∅@9       | k=∅@9      | k=B,∅,∅@9  | k=B,∅,∅@9   |
| 8 | L k=∅@8 |             |             |            | k=∅@8      | k=∅@8       |
""",
)


def rejoined(type: str) -> dict[str, Any]:
    chain = [
        join("fk", "table-table-fk", "left", "left", "right", fk_extractor=EXTRACTOR),
        join("again", "table-table", type, "left", "fk"),
    ]
    return {"type": type, "joins": chain}


# A foreign-key join, its result joined back to the left table: a left record comes by two ways.
REJOIN = scripts(
    "foreign key, joined back",
    "table-table",
    {"inner": rejoined("inner"), "left": rejoined("left")},
    joiner=JOINER,
    **PLAIN,
    table="""
| # | input     | inner         | left          |
|---|-----------|---------------|---------------|
| 1 | L k=1;a@1 | k=1;a,1;a,∅@1 | k=1;a,1;a,∅@1 |
| 2 | R 1=p@2   | k=1;a,1;a,p@2 | k=1;a,1;a,p@2 |
| 3 | L k=1;b@3 | k=1;b,1;b,p@3 | k=1;b,1;b,p@3 |
| 4 | R 1=∅@4   | k=1;b,1;b,∅@4 | k=1;b,1;b,∅@4 |
| 5 | L k=∅@5   | k=∅@5         | k=∅@5         |
""",
)


def managers(type: str) -> dict[str, Any]:
    itself = join("fk", "table-table-fk", type, "left", "left", fk_extractor=EXTRACTOR)
    return {"type": type, "joins": [itself]}


# Employees and their managers: one table on both sides of a foreign-key join. Row 4: z manages itself.
MANAGERS = scripts(
    "a table joined with itself by foreign key",
    "table-table-fk",
    {"inner": managers("inner"), "left": managers("left")},
    joiner=JOINER,
    **PLAIN,
    table="""
| # | input     | inner                    | left                     |
|---|-----------|--------------------------|--------------------------|
| 1 | L a=-;x@1 |                          | a=-;x,∅@1                |
| 2 | L b=a;y@2 | b=a;y,-;x@2              | b=a;y,-;x@2              |
| 3 | L a=-;w@3 | b=a;y,-;w@3              | a=-;w,∅@3; b=a;y,-;w@3   |
| 4 | L z=z;s@4 | z=z;s,z;s@4              | z=z;s,z;s@4              |
| 5 | L z=z;t@5 | z=z;t,z;t@5              | z=z;t,z;t@5              |
| 6 | L z=∅@6   | z=∅@6                    | z=∅@6                    |
| 7 | L a=b;v@7 | a=b;v,a;y@7; b=a;y,b;v@7 | a=b;v,a;y@7; b=a;y,b;v@7 |
| 8 | L a=∅@8   | a=∅@8; b=∅@8             | a=∅@8; b=a;y,∅@8         |
|   | dropped   | 2                        | 0                        |
""",
)

SCRIPTS = [*ITSELF, *TWICE, *REJOIN, *MANAGERS]
