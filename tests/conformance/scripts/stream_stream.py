"""Stream-stream joins, record by record. Rows that differ from Kafka's name the decision."""

# ruff: noqa: E501  (the tables are as wide as they are)

from typing import Any

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
KINDS = {"inner": {"type": "inner"}, "left": {"type": "left"}, "outer": {"type": "outer"}}
DAY = 24 * 60 * 60 * 1000


def window(before: int, after: int, grace: int) -> dict[str, Any]:
    return {"before_ms": before, "after_ms": after, "grace_ms": grace}


# x=- at rows 8, 13 and 19 is a heartbeat. Row 11 waits, for it is within grace (8.1); at row 13 the outer
# join releases j, for it has closed (8.3).
SS_1 = scripts(
    "SS-1 current",
    "stream-stream",
    KINDS,
    window=window(10, 10, 5),
    eager=False,
    joiner=JOINER,
    table="""
| #  | input    | inner              | left               | outer                        |
|----|----------|--------------------|--------------------|------------------------------|
| 1  | L k=a@10 |                    |                    |                              |
| 2  | L k=b@12 |                    |                    |                              |
| 3  | R k=p@15 | k=a,p@15; k=b,p@15 | k=a,p@15; k=b,p@15 | k=a,p@15; k=b,p@15           |
| 4  | R k=q@15 | k=a,q@15; k=b,q@15 | k=a,q@15; k=b,q@15 | k=a,q@15; k=b,q@15           |
| 5  | L j=c@16 |                    |                    |                              |
| 6  | R i=s@18 |                    |                    |                              |
| 7  | L k=d@24 | k=d,p@24; k=d,q@24 | k=d,p@24; k=d,q@24 | k=d,p@24; k=d,q@24           |
| 8  | R x=-@31 |                    |                    |                              |
| 9  | L k=e@20 | k=e,p@20; k=e,q@20 | k=e,p@20; k=e,q@20 | k=e,p@20; k=e,q@20           |
| 10 | R j=t@30 |                    |                    |                              |
| 11 | L h=f@17 |                    |                    |                              |
| 12 | R h=u@19 | h=f,u@19           | h=f,u@19           | h=f,u@19                     |
| 13 | L x=-@32 | x=-,-@32           | j=c,∅@16; x=-,-@32 | j=c,∅@16; x=-,-@32           |
| 14 | R i=v@33 |                    |                    |                              |
| 15 | L g=g@40 |                    |                    | i=∅,s@18                     |
| 16 | L ∅=n@41 |                    | ∅=n,∅@41           | ∅=n,∅@41                     |
| 17 | R ∅=m@42 |                    |                    | ∅=∅,m@42                     |
| 18 | L k=∅@43 |                    |                    |                              |
| 19 | L x=-@60 |                    | g=g,∅@40           | j=∅,t@30; i=∅,v@33; g=g,∅@40 |
|    | dropped  | 3                  | 2                  | 1                            |
""",
)

SS_2 = scripts(
    "SS-2 eager",
    "stream-stream",
    KINDS,
    window=window(10, 10, 5),
    eager=True,
    joiner=JOINER,
    table="""
| #  | input    | inner              | left               | outer              |
|----|----------|--------------------|--------------------|--------------------|
| 1  | L k=a@10 |                    | k=a,∅@10           | k=a,∅@10           |
| 2  | L k=b@12 |                    | k=b,∅@12           | k=b,∅@12           |
| 3  | R k=p@15 | k=a,p@15; k=b,p@15 | k=a,p@15; k=b,p@15 | k=a,p@15; k=b,p@15 |
| 4  | R k=q@15 | k=a,q@15; k=b,q@15 | k=a,q@15; k=b,q@15 | k=a,q@15; k=b,q@15 |
| 5  | L j=c@16 |                    | j=c,∅@16           | j=c,∅@16           |
| 6  | R i=s@18 |                    |                    | i=∅,s@18           |
| 7  | L k=d@24 | k=d,p@24; k=d,q@24 | k=d,p@24; k=d,q@24 | k=d,p@24; k=d,q@24 |
| 8  | R x=-@31 |                    |                    | x=∅,-@31           |
| 9  | L k=e@20 | k=e,p@20; k=e,q@20 | k=e,p@20; k=e,q@20 | k=e,p@20; k=e,q@20 |
| 10 | R j=t@30 |                    |                    | j=∅,t@30           |
| 11 | L h=f@17 |                    | h=f,∅@17           | h=f,∅@17           |
| 12 | R h=u@19 | h=f,u@19           | h=f,u@19           | h=f,u@19           |
| 13 | L x=-@32 | x=-,-@32           | x=-,-@32           | x=-,-@32           |
| 14 | R i=v@33 |                    |                    | i=∅,v@33           |
| 15 | L g=g@40 |                    | g=g,∅@40           | g=g,∅@40           |
| 16 | L ∅=n@41 |                    | ∅=n,∅@41           | ∅=n,∅@41           |
| 17 | R ∅=m@42 |                    |                    | ∅=∅,m@42           |
| 18 | L k=∅@43 |                    |                    |                    |
| 19 | L x=-@60 |                    | x=-,∅@60           | x=-,∅@60           |
|    | dropped  | 3                  | 2                  | 1                  |
""",
)

# Row 5 sees only left timestamps >= 100 - 25 + 1 = 76. Rows 7-9: older left records still find the right
# 80, for the right side has only seen 80. Left and outer: a record whose unmatched row is out has no
# partners any more, and a late one that finds none is unmatched at once (8.2).
SS_3 = scripts(
    "SS-3 retention and late records",
    "stream-stream",
    KINDS,
    window=window(10, 10, 5),
    eager=False,
    joiner=JOINER,
    table="""
| #  | input      | inner                   | left                            | outer                           |
|----|------------|-------------------------|---------------------------------|---------------------------------|
| 1  | L k=74@74  |                         |                                 |                                 |
| 2  | L k=75@75  |                         |                                 |                                 |
| 3  | L k=76@76  |                         |                                 |                                 |
| 4  | L x=x@100  |                         | k=74,∅@74; k=75,∅@75; k=76,∅@76 | k=74,∅@74; k=75,∅@75; k=76,∅@76 |
| 5  | R k=80@80  | k=76,80@80              |                                 | k=∅,80@80                       |
| 6  | L k=60@60  |                         | k=60,∅@60                       | k=60,∅@60                       |
| 7  | L k=70@70  | k=70,80@80              | k=70,80@80                      | k=70,∅@70                       |
| 8  | L k=76b@76 | k=76b,80@80             | k=76b,80@80                     | k=76b,∅@76                      |
| 9  | L k=75b@75 | k=75b,80@80             | k=75b,80@80                     | k=75b,∅@75                      |
| 10 | R k=66@66  | k=76,66@76; k=76b,66@76 | k=76b,66@76                     | k=∅,66@66                       |
| 11 | R k=86@86  | k=76,86@86; k=76b,86@86 | k=76b,86@86                     |                                 |
| 12 | L k=56@56  | k=56,66@66              | k=56,66@66                      | k=56,∅@56                       |
| 13 | R y=y@120  |                         | x=x,∅@100                       | k=∅,86@86; x=x,∅@100            |
| 14 | L k=90@90  |                         | k=90,∅@90                       | k=90,∅@90                       |
|    | dropped    | 0                       | 0                               | 0                               |
""",
)

# One stream on both sides. Row 5: E is outside retention (8 <= 30 - 20); the eager window keeps a day. A
# null key or value is counted once.
SS_4 = scripts(
    "SS-4 self-join",
    "stream-stream",
    {
        "inner": {"type": "inner", "window": window(10, 10, 0), "eager": False},
        "left, eager": {"type": "left", "window": window(10, 10, DAY - 20), "eager": True},
    },
    joiner=JOINER,
    self_join=True,
    table="""
| # | input    | inner                                       | left, eager                                                   |
|---|----------|---------------------------------------------|---------------------------------------------------------------|
| 1 | L k=A@5  | k=A,A@5                                     | k=A,∅@5; k=A,A@5                                              |
| 2 | L k=B@9  | k=B,A@9; k=A,B@9; k=B,B@9                   | k=B,A@9; k=A,B@9; k=B,B@9                                     |
| 3 | L k=C@7  | k=C,A@7; k=C,B@9; k=A,C@7; k=C,C@7; k=B,C@9 | k=C,A@7; k=C,B@9; k=A,C@7; k=C,C@7; k=B,C@9                   |
| 4 | L k=D@30 | k=D,D@30                                    | k=D,∅@30; k=D,D@30                                            |
| 5 | L k=E@8  |                                             | k=E,A@8; k=E,C@8; k=E,B@9; k=A,E@8; k=C,E@8; k=E,E@8; k=B,E@9 |
| 6 | L ∅=n@31 |                                             | ∅=n,∅@31                                                      |
| 7 | L k=∅@32 |                                             |                                                               |
|   | dropped  | 2                                           | 1                                                             |
""",
)

# First column: the right record must lie in [l - 10, l]; second: in [l, l + 10].
SS_5 = scripts(
    "SS-5 asymmetric windows",
    "stream-stream",
    {
        "left, ±10 with after(0)": {"type": "left", "window": window(10, 0, 0)},
        "outer, ±10 with before(0)": {"type": "outer", "window": window(0, 10, 0)},
    },
    eager=False,
    joiner=JOINER,
    table="""
| # | input        | left, ±10 with after(0) | outer, ±10 with before(0) |
|---|--------------|-------------------------|---------------------------|
| 1 | R k=r100@100 |                         |                           |
| 2 | L k=l100@100 | k=l100,r100@100         | k=l100,r100@100           |
| 3 | L k=l105@105 | k=l105,r100@105         |                           |
| 4 | R k=r104@104 | k=l105,r104@105         | k=l100,r104@104           |
| 5 | L k=l120@120 |                         | k=l105,∅@105              |
| 6 | R k=r115@115 | k=l120,r115@120         | k=∅,r115@115              |
| 7 | L z=z@121    |                         |                           |
| 8 | R z=y@140    | z=z,∅@121               | k=l120,∅@120; z=z,∅@121   |
|   | dropped      | 0                       | 0                         |
""",
)

SCRIPTS = [*SS_1, *SS_2, *SS_3, *SS_4, *SS_5]
