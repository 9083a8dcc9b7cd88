"""Stream-table joins, record by record: plain, over a versioned table, and with a grace period."""

from tests.conformance.case import scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
PLAIN = {"table_versioned_ms": None, "stream_grace_ms": None}
VERSIONED = {"table_versioned_ms": 1000, "stream_grace_ms": None}
GRACE = {"table_versioned_ms": 1000, "stream_grace_ms": 10}

# Row 2: an unversioned table is read as it is now, whatever the timestamps.
ST_1 = scripts(
    "ST-1",
    "stream-table",
    {
        "inner": {"type": "inner", **PLAIN},
        "left": {"type": "left", **PLAIN},
        "inner versioned(1000)": {"type": "inner", **VERSIONED},
        "left versioned(1000)": {"type": "left", **VERSIONED},
    },
    joiner=JOINER,
    table="""
| #  | input    | inner    | left     | inner versioned(1000) | left versioned(1000) |
|----|----------|----------|----------|-----------------------|----------------------|
| 1  | R k=p@10 |          |          |                       |                      |
| 2  | L k=a@5  | k=a,p@5  | k=a,p@5  |                       | k=a,∅@5              |
| 3  | L k=b@10 | k=b,p@10 | k=b,p@10 | k=b,p@10              | k=b,p@10             |
| 4  | R k=q@20 |          |          |                       |                      |
| 5  | L k=c@15 | k=c,q@15 | k=c,q@15 | k=c,p@15              | k=c,p@15             |
| 6  | R k=∅@17 |          |          |                       |                      |
| 7  | L k=d@18 |          | k=d,∅@18 |                       | k=d,∅@18             |
| 8  | L k=e@20 |          | k=e,∅@20 | k=e,q@20              | k=e,q@20             |
| 9  | R k=s@12 |          |          |                       |                      |
| 10 | L k=f@13 | k=f,s@13 | k=f,s@13 | k=f,s@13              | k=f,s@13             |
| 11 | L ∅=g@21 |          | ∅=g,∅@21 |                       | ∅=g,∅@21             |
| 12 | L k=∅@22 |          |          |                       |                      |
| 13 | R ∅=t@23 |          |          |                       |                      |
| 14 | L z=h@24 |          | z=h,∅@24 |                       | z=h,∅@24             |
|    | dropped  | 3        | 2        | 3                     | 2                    |
""",
)

# Row 9: later than grace, joined at once; 10: exactly at the edge, buffered and released at once; 11:
# table records release nothing; 16: equal timestamps in key order, then arrival.
ST_2 = scripts(
    "ST-2 grace 10",
    "stream-table",
    {"inner": {"type": "inner", **GRACE}, "left": {"type": "left", **GRACE}},
    joiner=JOINER,
    table="""
| #  | input       | inner                        | left                         |
|----|-------------|------------------------------|------------------------------|
| 1  | R k=p@0     |                              |                              |
| 2  | L k=1@10    |                              |                              |
| 3  | L k=2@12    |                              |                              |
| 4  | R k=q@11    |                              |                              |
| 5  | L k=3@20    | k=1,p@10                     | k=1,p@10                     |
| 6  | L k=4@21    |                              |                              |
| 7  | R k=s@21    |                              |                              |
| 8  | L k=5@22    | k=2,q@12                     | k=2,q@12                     |
| 9  | L k=late@11 | k=late,q@11                  | k=late,q@11                  |
| 10 | L k=edge@12 | k=edge,q@12                  | k=edge,q@12                  |
| 11 | R z=t@99    |                              |                              |
| 12 | L z=6@33    | k=3,q@20; k=4,s@21; k=5,s@22 | k=3,q@20; k=4,s@21; k=5,s@22 |
| 13 | L a=7@43    |                              | z=6,∅@33                     |
| 14 | L b=8@43    |                              |                              |
| 15 | L a=9@43    |                              |                              |
| 16 | L c=x@53    |                              | a=7,∅@43; a=9,∅@43; b=8,∅@43 |
|    | dropped     | 0                            | 0                            |
""",
)

SCRIPTS = [*ST_1, *ST_2]
