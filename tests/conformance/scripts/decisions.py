"""Small stories for what the tables of the specification leave out. Numbers are those of its sections."""

from typing import Any

from tests.conformance.case import Script, scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
STREAM: dict[str, Any] = {"joiner": JOINER, "eager": False}


def window(before: int, after: int, grace: int = 0) -> dict[str, int]:
    return {"before_ms": before, "after_ms": after, "grace_ms": grace}


# 8.3: rows 0, 5 and 9 close one after the other; Kafka holds 5 and 9 back until 20.
RELEASED_WHEN_CLOSED = scripts(
    "8.3 released when closed",
    "stream-stream",
    {"left": {"type": "left"}, "outer": {"type": "outer"}},
    window=window(10, 10),
    **STREAM,
    table="""
| # | input     | left    | outer   |
|---|-----------|---------|---------|
| 1 | L a=0@0   |         |         |
| 2 | L b=5@5   |         |         |
| 3 | L c=9@9   |         |         |
| 4 | L d=11@11 | a=0,∅@0 | a=0,∅@0 |
| 5 | L e=16@16 | b=5,∅@5 | b=5,∅@5 |
| 6 | L f=20@20 | c=9,∅@9 | c=9,∅@9 |
""",
)

# 8.3: any record that moves stream time releases, also one that is dropped, and before its own row.
DROPPED_RECORDS_RELEASE = scripts(
    "8.3 released by a dropped record",
    "stream-stream",
    {"left": {"type": "left"}, "outer": {"type": "outer"}},
    window=window(10, 10),
    **STREAM,
    table="""
| # | input    | left     | outer              |
|---|----------|----------|--------------------|
| 1 | L a=0@0  |          |                    |
| 2 | R b=∅@11 | a=0,∅@0  | a=0,∅@0            |
| 3 | L c=1@12 |          |                    |
| 4 | R ∅=n@23 | c=1,∅@12 | c=1,∅@12; ∅=∅,n@23 |
| 5 | L ∅=∅@24 |          |                    |
|   | dropped  | 3        | 2                  |
""",
)

# 8.1: out of order but within grace waits, and is joined; 8.2: late and alone is unmatched at once, for
# good.
WITHIN_GRACE = scripts(
    "8.1 and 8.2 out of order",
    "stream-stream",
    {"left": {"type": "left"}, "outer": {"type": "outer"}},
    window=window(10, 10, 5),
    **STREAM,
    table="""
| # | input    | left     | outer    |
|---|----------|----------|----------|
| 1 | R h=-@35 |          |          |
| 2 | L k=a@20 |          |          |
| 3 | R k=p@22 | k=a,p@22 | k=a,p@22 |
| 4 | L m=b@19 | m=b,∅@19 | m=b,∅@19 |
| 5 | R m=q@21 |          |          |
| 6 | L m=c@21 | m=c,q@21 | m=c,q@21 |
| 7 | R h=-@80 |          | h=∅,-@35 |
""",
)

# 8.5: before = -5: the right record must be at least 5 newer. 0 and 4 are no partners, near the epoch or
# not. A right record that comes in order is alone for good: what could be its partner is 5 older.
REAL_BOUNDS = scripts(
    "8.5 no match outside the bounds",
    "stream-stream",
    {"inner": {"type": "inner"}, "outer": {"type": "outer"}},
    window=window(-5, 20),
    **STREAM,
    table="""
| # | input    | inner    | outer    |
|---|----------|----------|----------|
| 1 | L k=a@0  |          |          |
| 2 | R k=p@4  |          | k=∅,p@4  |
| 3 | R k=q@5  | k=a,q@5  | k=a,q@5  |
| 4 | L k=b@20 |          |          |
| 5 | R k=s@20 | k=a,s@20 | k=a,s@20 |
| 6 | R k=t@21 |          | k=∅,t@21 |
| 7 | R k=u@25 | k=b,u@25 | k=b,u@25 |
""",
)

# 2.1.4: in one pass by timestamp, the right side before the left one. Neither lies in the other's window.
RIGHT_BEFORE_LEFT = scripts(
    "2.1.4 right before left",
    "stream-stream",
    {"left": {"type": "left"}, "outer": {"type": "outer"}},
    window=window(-5, 20, 10),
    **STREAM,
    table="""
| # | input     | left    | outer                     |
|---|-----------|---------|---------------------------|
| 1 | L k=a@9   |         |                           |
| 2 | R k=p@9   |         |                           |
| 3 | R k=q@5   |         |                           |
| 4 | L x=-@100 | k=a,∅@9 | k=∅,q@5; k=∅,p@9; k=a,∅@9 |
""",
)

# 8.6: exactly grace late, with one bound 0: retention is 10, but 0 stays visible while its window is
# open.
INCLUSIVE_RETENTION = scripts(
    "8.6 visible until its window has closed",
    "stream-stream",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    window=window(0, 10),
    **STREAM,
    table="""
| # | input    | inner    | left               |
|---|----------|----------|--------------------|
| 1 | L k=a@0  |          |                    |
| 2 | L x=x@10 |          |                    |
| 3 | R k=p@10 | k=a,p@10 | k=a,p@10           |
| 4 | L x=y@11 |          |                    |
| 5 | R k=q@10 |          |                    |
| 6 | R x=z@40 |          | x=x,∅@10; x=y,∅@11 |
""",
)

# A self-join in current mode: who finds itself is never unmatched, also when late. Null keys of outer
# sides come out.
SELF_JOIN = scripts(
    "2.1.8 self-join, left and outer",
    "stream-stream",
    {"left": {"type": "left"}, "outer": {"type": "outer"}},
    window=window(10, 10),
    self_join=True,
    **STREAM,
    # row 3 is late (12 + 10 < 30) but visible (12 > 30 - 20); row 4 is not: unmatched on each outer side
    table="""
| # | input    | left     | outer              |
|---|----------|----------|--------------------|
| 1 | L k=A@5  | k=A,A@5  | k=A,A@5            |
| 2 | L k=B@30 | k=B,B@30 | k=B,B@30           |
| 3 | L m=C@12 | m=C,C@12 | m=C,C@12           |
| 4 | L n=D@9  | n=D,∅@9  | n=D,∅@9; n=∅,D@9   |
| 5 | L ∅=E@31 | ∅=E,∅@31 | ∅=E,∅@31; ∅=∅,E@31 |
| 6 | L k=∅@90 |          |                    |
|   | dropped  | 1        | 1                  |
""",
)

# 8.11: a null key does not wait and does not move the clock of the buffer.
NULL_KEY_WITH_GRACE = scripts(
    "8.11 null key with grace",
    "stream-table",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    table_versioned_ms=1000,
    stream_grace_ms=10,
    table="""
| # | input     | inner   | left      |
|---|-----------|---------|-----------|
| 1 | R k=p@1   |         |           |
| 2 | L k=a@5   |         |           |
| 3 | L ∅=n@100 |         | ∅=n,∅@100 |
| 4 | L k=b@15  | k=a,p@5 | k=a,p@5   |
| 5 | L k=∅@99  |         |           |
|   | dropped   | 2       | 1         |
""",
)

# A lookup older than the history finds only the latest row, if that is old enough; row 6 is exactly as old.
# Older updates are refused.
HISTORY = scripts(
    "2.3.1 history of a versioned table",
    "stream-table",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    table_versioned_ms=10,
    stream_grace_ms=None,
    table="""
| #  | input    | inner    | left     |
|----|----------|----------|----------|
| 1  | R k=p@10 |          |          |
| 2  | R k=q@20 |          |          |
| 3  | R m=s@12 |          |          |
| 4  | L k=a@15 | k=a,p@15 | k=a,p@15 |
| 5  | R x=-@25 |          |          |
| 6  | L k=g@15 | k=g,p@15 | k=g,p@15 |
| 7  | R x=-@31 |          |          |
| 8  | L k=b@15 |          | k=b,∅@15 |
| 9  | L m=c@15 | m=c,s@15 | m=c,s@15 |
| 10 | L k=d@25 | k=d,q@25 | k=d,q@25 |
| 11 | R k=t@20 |          |          |
| 12 | R k=u@21 |          |          |
| 13 | L k=e@22 | k=e,u@22 | k=e,u@22 |
|    | dropped  | 1        | 1        |
""",
)

# 8.14: the two races that leave a stale row in every version of Kafka's inner join.
PLAIN: dict[str, Any] = {"left_versioned_ms": None, "right_versioned_ms": None}
EXTRACTOR = {"kind": "split", "sep": ";", "index": 0, "null_if": "-"}

DELETED_AND_BACK = scripts(
    "8.14 deleted, and back with a foreign key without row",
    "table-table-fk",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    **PLAIN,
    table="""
| # | input     | inner     | left      |
|---|-----------|-----------|-----------|
| 1 | R a=p@1   |           |           |
| 2 | L k=a;1@2 | k=a;1,p@2 | k=a;1,p@2 |
| 3 | L k=∅@3   | k=∅@3     | k=∅@3     |
| 4 | L k=b;2@4 |           | k=b;2,∅@4 |
""",
)

UPDATED_WHILE_RIGHT_GOES = scripts(
    "8.14 right row deleted, left row updated",
    "table-table-fk",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    **PLAIN,
    table="""
| # | input     | inner     | left      |
|---|-----------|-----------|-----------|
| 1 | R a=p@1   |           |           |
| 2 | L k=a;1@2 | k=a;1,p@2 | k=a;1,p@2 |
| 3 | R a=∅@3   | k=∅@3     | k=a;1,∅@3 |
| 4 | L k=a;2@4 |           | k=a;2,∅@4 |
""",
)

# 2.5.3, rows 5 and 8, inner: the tombstone takes the old foreign row's timestamp, if there is one.
TOMBSTONE_TIMESTAMPS = scripts(
    "2.5.3 timestamps of tombstones",
    "table-table-fk",
    {"inner": {"type": "inner"}, "left": {"type": "left"}},
    joiner=JOINER,
    fk_extractor=EXTRACTOR,
    **PLAIN,
    table="""
| # | input     | inner      | left       |
|---|-----------|------------|------------|
| 1 | R a=p@50  |            |            |
| 2 | L k=a;1@2 | k=a;1,p@50 | k=a;1,p@50 |
| 3 | L k=-;2@3 | k=∅@50     | k=-;2,∅@3  |
| 4 | L k=a;3@4 | k=a;3,p@50 | k=a;3,p@50 |
| 5 | L k=∅@5   | k=∅@50     | k=∅@5      |
| 6 | L k=a;4@6 | k=a;4,p@50 | k=a;4,p@50 |
| 7 | L k=b;5@7 | k=∅@7      | k=b;5,∅@7  |
| 8 | L k=-;6@8 | k=∅@8      | k=-;6,∅@8  |
|   | dropped   | 2          | 0          |
""",
)

# An update older than the history of a versioned input is refused and counted; history is kept per table.
TOO_OLD = scripts(
    "2.2.6 older than history",
    "table-table",
    {"inner": {"type": "inner"}, "left": {"type": "left"}, "outer": {"type": "outer"}},
    joiner=JOINER,
    left_versioned_ms=10,
    right_versioned_ms=10,
    table="""
| # | input    | inner    | left     | outer    |
|---|----------|----------|----------|----------|
| 1 | L x=X@30 |          | x=X,∅@30 | x=X,∅@30 |
| 2 | L k=A@19 |          |          |          |
| 3 | L k=B@20 |          | k=B,∅@20 | k=B,∅@20 |
| 4 | R k=p@1  | k=B,p@20 | k=B,p@20 | k=B,p@20 |
| 5 | L k=C@20 | k=C,p@20 | k=C,p@20 | k=C,p@20 |
| 6 | L k=∅@25 | k=∅@25   | k=∅@25   | k=∅,p@25 |
| 7 | L k=D@24 |          |          |          |
|   | dropped  | 2        | 2        | 2        |
""",
)

TABLES: list[Script] = [*DELETED_AND_BACK, *UPDATED_WHILE_RIGHT_GOES, *TOMBSTONE_TIMESTAMPS, *TOO_OLD]
STREAMS: list[Script] = [
    *RELEASED_WHEN_CLOSED,
    *DROPPED_RECORDS_RELEASE,
    *WITHIN_GRACE,
    *REAL_BOUNDS,
    *RIGHT_BEFORE_LEFT,
    *INCLUSIVE_RETENTION,
    *SELF_JOIN,
    *NULL_KEY_WITH_GRACE,
    *HISTORY,
]
