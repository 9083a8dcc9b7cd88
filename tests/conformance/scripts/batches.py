"""Several records in one micro-batch: tables emit the last change of each key, once, materialised or not.

The outputs of a batch stand at its last input. A change that leaves the row as it was may come out as well:
compare without those. These are Kafka's record caches, flushed at a commit, without their duplicates.
"""

from dataclasses import replace

from tests.conformance.case import Script, scripts
from tests.conformance.scripts.views_clicks import TABLE_TABLE

KINDS = {"inner": {"type": "inner"}, "left": {"type": "left"}, "outer": {"type": "outer"}}


def ending(after: tuple[int, ...], found: list[Script]) -> list[Script]:
    return [replace(script, ends=after) for script in found]


CA_1 = ending(
    (2, 4, 5, 7, 8, 10, 12),
    scripts(
        "CA-1",
        "table-table",
        KINDS,
        joiner={"template": "{left},{right}", "missing": "∅"},
        left_versioned_ms=None,
        right_versioned_ms=None,
        table="""
| #  | input    | inner    | left     | outer    |
|----|----------|----------|----------|----------|
| 1  | L k=A@1  |          |          |          |
| 2  | R k=a@2  | k=A,a@2  | k=A,a@2  | k=A,a@2  |
| 3  | L k=B@3  |          |          |          |
| 4  | L k=C@4  | k=C,a@4  | k=C,a@4  | k=C,a@4  |
| 5  | L k=∅@5  | k=∅@5    | k=∅@5    | k=∅,a@5  |
| 6  | L k=D@6  |          |          |          |
| 7  | L k=∅@7  |          |          |          |
| 8  | L n=∅@8  |          |          |          |
| 9  | L k=E@20 |          |          |          |
| 10 | L k=F@10 | k=F,a@10 | k=F,a@10 | k=F,a@10 |
| 11 | R k=b@30 |          |          |          |
| 12 | L k=G@25 | k=G,b@30 | k=G,b@30 | k=G,b@30 |
""",
    ),
)


def in_one_batch(script: Script) -> Script:
    """The final table of views and clicks at the last input, each row with the timestamp it was made at."""
    last = {output.key: output for outputs in script.expected for output in outputs}
    inputs = [given for given, _ in script.rows]
    outputs = [(), *([()] * (len(inputs) - 2)), tuple(last.values())]
    return replace(
        script,
        name=f"{script.name}, in one batch",
        rows=tuple(zip(inputs, outputs, strict=True)),
        ends=(len(inputs),),
    )


VIEWS_CLICKS = [in_one_batch(script) for script in TABLE_TABLE]

SCRIPTS = [*CA_1, *VIEWS_CLICKS]
