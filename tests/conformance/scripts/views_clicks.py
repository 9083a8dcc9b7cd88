"""Views and clicks: the data of the "Crossing the Streams" blog through all ten joins.

Window 10 s, times in seconds. Left = views, right = clicks. Nothing happens at Z but a heartbeat at 25.
"""

# ruff: noqa: E501  (the tables are as wide as they are)

from tests.conformance.case import Script, scripts

JOINER = {"template": "{left},{right}", "missing": "∅"}
SECOND = 1000
DAY = 24 * 60 * 60 * SECOND
TEN = {"before_ms": 10 * SECOND, "after_ms": 10 * SECOND}

NO_GRACE = {"window": {**TEN, "grace_ms": 0}, "eager": False}
GRACE_5 = {"window": {**TEN, "grace_ms": 5 * SECOND}, "eager": False}
CLICK_AFTER_VIEW = {"window": {**TEN, "before_ms": 0, "grace_ms": 0}, "eager": False}
EAGER = {"window": {**TEN, "grace_ms": DAY - 20 * SECOND}, "eager": True}

STREAM_STREAM = scripts(
    "views and clicks: stream-stream",
    "stream-stream",
    {
        "inner": {"type": "inner", **NO_GRACE},
        "left, eager": {"type": "left", **EAGER},
        "outer, eager": {"type": "outer", **EAGER},
        "left": {"type": "left", **NO_GRACE},
        "outer": {"type": "outer", **NO_GRACE},
    },
    unit=SECOND,
    joiner=JOINER,
    # B's view is released by the very click that came too late
    table="""
| #  | input       | inner                | left, eager          | outer, eager         | left                 | outer                      |
|----|-------------|----------------------|----------------------|----------------------|----------------------|----------------------------|
| 1  | L A=A@0     |                      | A=A,∅@0              | A=A,∅@0              |                      |                            |
| 2  | R A=A@1     | A=A,A@1              | A=A,A@1              | A=A,A@1              | A=A,A@1              | A=A,A@1                    |
| 3  | L B=B@1     |                      | B=B,∅@1              | B=B,∅@1              |                      |                            |
| 4  | R C=C@2     |                      |                      | C=∅,C@2              |                      |                            |
| 5  | L C=C@3     | C=C,C@3              | C=C,C@3              | C=C,C@3              | C=C,C@3              | C=C,C@3                    |
| 6  | L D=D@4     |                      | D=D,∅@4              | D=D,∅@4              |                      |                            |
| 7  | R E=E@5     |                      |                      | E=∅,E@5              |                      |                            |
| 8  | L F=F.1@6   |                      | F=F.1,∅@6            | F=F.1,∅@6            |                      |                            |
| 9  | L F=F.2@6.5 |                      | F=F.2,∅@6.5          | F=F.2,∅@6.5          |                      |                            |
| 10 | R F=F@7     | F=F.1,F@7; F=F.2,F@7 | F=F.1,F@7; F=F.2,F@7 | F=F.1,F@7; F=F.2,F@7 | F=F.1,F@7; F=F.2,F@7 | F=F.1,F@7; F=F.2,F@7       |
| 11 | L G=G@8     |                      | G=G,∅@8              | G=G,∅@8              |                      |                            |
| 12 | R G=G.1@9   | G=G,G.1@9            | G=G,G.1@9            | G=G,G.1@9            | G=G,G.1@9            | G=G,G.1@9                  |
| 13 | R G=G.2@9.5 | G=G,G.2@9.5          | G=G,G.2@9.5          | G=G,G.2@9.5          | G=G,G.2@9.5          | G=G,G.2@9.5                |
| 14 | R B=B@12    |                      |                      | B=∅,B@12             | B=B,∅@1              | B=B,∅@1                    |
| 15 | L Z=Z@25    |                      | Z=Z,∅@25             | Z=Z,∅@25             | D=D,∅@4              | D=D,∅@4; E=∅,E@5; B=∅,B@12 |
| 16 | R Z=Z@25    | Z=Z,Z@25             | Z=Z,Z@25             | Z=Z,Z@25             | Z=Z,Z@25             | Z=Z,Z@25                   |
|    | dropped     | 0                    | 0                    | 0                    | 0                    | 0                          |
""",
)

VARIANTS = scripts(
    "views and clicks: stream-stream",
    "stream-stream",
    {
        "left, grace 5": {"type": "left", **GRACE_5},
        "outer, grace 5": {"type": "outer", **GRACE_5},
        "left, click after view": {"type": "left", **CLICK_AFTER_VIEW},
    },
    unit=SECOND,
    joiner=JOINER,
    table="""
| #  | input       | left, grace 5        | outer, grace 5            | left, click after view |
|----|-------------|----------------------|---------------------------|------------------------|
| 1  | L A=A@0     |                      |                           |                        |
| 2  | R A=A@1     | A=A,A@1              | A=A,A@1                   | A=A,A@1                |
| 3  | L B=B@1     |                      |                           |                        |
| 4  | R C=C@2     |                      |                           |                        |
| 5  | L C=C@3     | C=C,C@3              | C=C,C@3                   |                        |
| 6  | L D=D@4     |                      |                           |                        |
| 7  | R E=E@5     |                      |                           |                        |
| 8  | L F=F.1@6   |                      |                           |                        |
| 9  | L F=F.2@6.5 |                      |                           |                        |
| 10 | R F=F@7     | F=F.1,F@7; F=F.2,F@7 | F=F.1,F@7; F=F.2,F@7      | F=F.1,F@7; F=F.2,F@7   |
| 11 | L G=G@8     |                      |                           |                        |
| 12 | R G=G.1@9   | G=G,G.1@9            | G=G,G.1@9                 | G=G,G.1@9              |
| 13 | R G=G.2@9.5 | G=G,G.2@9.5          | G=G,G.2@9.5               | G=G,G.2@9.5            |
| 14 | R B=B@12    |                      |                           | B=B,∅@1                |
| 15 | L Z=Z@25    | B=B,∅@1; D=D,∅@4     | B=B,∅@1; D=D,∅@4; E=∅,E@5 | C=C,∅@3; D=D,∅@4       |
| 16 | R Z=Z@25    | Z=Z,Z@25             | Z=Z,Z@25                  | Z=Z,Z@25               |
""",
)

TABLE_TABLE = scripts(
    "views and clicks: table-table",
    "table-table",
    {"inner": {"type": "inner"}, "left": {"type": "left"}, "outer": {"type": "outer"}},
    unit=SECOND,
    joiner=JOINER,
    left_versioned_ms=None,
    right_versioned_ms=None,
    table="""
| #  | input       | inner       | left        | outer       |
|----|-------------|-------------|-------------|-------------|
| 1  | L A=A@0     |             | A=A,∅@0     | A=A,∅@0     |
| 2  | R A=A@1     | A=A,A@1     | A=A,A@1     | A=A,A@1     |
| 3  | L B=B@1     |             | B=B,∅@1     | B=B,∅@1     |
| 4  | R C=C@2     |             |             | C=∅,C@2     |
| 5  | L C=C@3     | C=C,C@3     | C=C,C@3     | C=C,C@3     |
| 6  | L D=D@4     |             | D=D,∅@4     | D=D,∅@4     |
| 7  | R E=E@5     |             |             | E=∅,E@5     |
| 8  | L F=F.1@6   |             | F=F.1,∅@6   | F=F.1,∅@6   |
| 9  | L F=F.2@6.5 |             | F=F.2,∅@6.5 | F=F.2,∅@6.5 |
| 10 | R F=F@7     | F=F.2,F@7   | F=F.2,F@7   | F=F.2,F@7   |
| 11 | L G=G@8     |             | G=G,∅@8     | G=G,∅@8     |
| 12 | R G=G.1@9   | G=G,G.1@9   | G=G,G.1@9   | G=G,G.1@9   |
| 13 | R G=G.2@9.5 | G=G,G.2@9.5 | G=G,G.2@9.5 | G=G,G.2@9.5 |
| 14 | R B=B@12    | B=B,B@12    | B=B,B@12    | B=B,B@12    |
|    | dropped     | 0           | 0           | 0           |
""",
)

PLAIN = {"table_versioned_ms": None, "stream_grace_ms": None}
VERSIONED = {"table_versioned_ms": DAY, "stream_grace_ms": None}
BY_KEY = {"key_mapper": {"kind": "key"}, "table_versioned_ms": None}

STREAM_TABLE = scripts(
    "views and clicks: stream-table",
    "stream-table",
    {
        "inner": {"type": "inner", **PLAIN},
        "left": {"type": "left", **PLAIN},
        "inner, versioned": {"type": "inner", **VERSIONED},
        "left, versioned": {"type": "left", **VERSIONED},
    },
    unit=SECOND,
    joiner=JOINER,
    table="""
| #  | input       | inner   | left        | inner, versioned | left, versioned |
|----|-------------|---------|-------------|------------------|-----------------|
| 1  | L A=A@0     |         | A=A,∅@0     |                  | A=A,∅@0         |
| 2  | R A=A@1     |         |             |                  |                 |
| 3  | L B=B@1     |         | B=B,∅@1     |                  | B=B,∅@1         |
| 4  | R C=C@2     |         |             |                  |                 |
| 5  | L C=C@3     | C=C,C@3 | C=C,C@3     | C=C,C@3          | C=C,C@3         |
| 6  | L D=D@4     |         | D=D,∅@4     |                  | D=D,∅@4         |
| 7  | R E=E@5     |         |             |                  |                 |
| 8  | L F=F.1@6   |         | F=F.1,∅@6   |                  | F=F.1,∅@6       |
| 9  | L F=F.2@6.5 |         | F=F.2,∅@6.5 |                  | F=F.2,∅@6.5     |
| 10 | R F=F@7     |         |             |                  |                 |
| 11 | L G=G@8     |         | G=G,∅@8     |                  | G=G,∅@8         |
| 12 | R G=G.1@9   |         |             |                  |                 |
| 13 | R G=G.2@9.5 |         |             |                  |                 |
| 14 | R B=B@12    |         |             |                  |                 |
""",
)

CLICKS_FIRST = """
| #  | input       | inner       | left        | inner, versioned | left, versioned |
|----|-------------|-------------|-------------|------------------|-----------------|
| 1  | R A=A@1     |             |             |                  |                 |
| 2  | R C=C@2     |             |             |                  |                 |
| 3  | R E=E@5     |             |             |                  |                 |
| 4  | R F=F@7     |             |             |                  |                 |
| 5  | R G=G.1@9   |             |             |                  |                 |
| 6  | R G=G.2@9.5 |             |             |                  |                 |
| 7  | R B=B@12    |             |             |                  |                 |
| 8  | L A=A@0     | A=A,A@0     | A=A,A@0     |                  | A=A,∅@0         |
| 9  | L B=B@1     | B=B,B@1     | B=B,B@1     |                  | B=B,∅@1         |
| 10 | L C=C@3     | C=C,C@3     | C=C,C@3     | C=C,C@3          | C=C,C@3         |
| 11 | L D=D@4     |             | D=D,∅@4     |                  | D=D,∅@4         |
| 12 | L F=F.1@6   | F=F.1,F@6   | F=F.1,F@6   |                  | F=F.1,∅@6       |
| 13 | L F=F.2@6.5 | F=F.2,F@6.5 | F=F.2,F@6.5 |                  | F=F.2,∅@6.5     |
| 14 | L G=G@8     | G=G,G.2@8   | G=G,G.2@8   |                  | G=G,∅@8         |
"""

STREAM_TABLE_CLICKS_FIRST = scripts(
    "views and clicks, clicks first: stream-table",
    "stream-table",
    {
        "inner": {"type": "inner", **PLAIN},
        "left": {"type": "left", **PLAIN},
        "inner, versioned": {"type": "inner", **VERSIONED},
        "left, versioned": {"type": "left", **VERSIONED},
    },
    unit=SECOND,
    joiner=JOINER,
    table=CLICKS_FIRST,
)

STREAM_GLOBAL = scripts(
    "views and clicks, clicks first: stream-global",
    "stream-globaltable",
    {"inner": {"type": "inner", **BY_KEY}, "left": {"type": "left", **BY_KEY}},
    unit=SECOND,
    joiner=JOINER,
    table=CLICKS_FIRST,
)

TABLES: list[Script] = [*TABLE_TABLE]
STREAMS: list[Script] = [
    *STREAM_STREAM,
    *VARIANTS,
    *STREAM_TABLE,
    *STREAM_TABLE_CLICKS_FIRST,
    *STREAM_GLOBAL,
]
