"""Windows: any cut into batches gives the table, and with emit="close" the records, of one record at a time."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.effort import cases
from tests.operators.aggregate.windowed import Case, Ran, Record, cut, random_case, random_records, run
from tests.reference.windows import Result, Windowing


def expected(case: Case, records: list[Record]) -> tuple[Windowing, list[list[Result]]]:
    reference = case.reference()
    return reference, [reference.process(*record) for record in records]


def shown(reference: Windowing) -> list[tuple[tuple[str, int, int], object]]:
    """The rows of a store that its queries show, by key, then time."""
    return sorted((window, row[0]) for window, row in reference.rows.items())


def newest(results: list[Result]) -> dict[tuple[str, int, int], object]:
    """The last value of each window; without those that were deleted."""
    last = {(r.key, r.start, r.end): (r.value, r.ts) for r in results}
    return {window: row for window, row in last.items() if row[0] is not None}


@cases(1)
@given(st.integers(0, 10**9))
def test_a_record_at_a_time(seed: int) -> None:
    random = Random(seed)
    case, records = random_case(random), random_records(random)
    ran = run(case, [[record] for record in records])
    reference, results = expected(case, records)
    assert ran.batches == results, (case, records)
    check_store(case, ran, reference)


@cases(1)
@given(st.integers(0, 10**9))
def test_any_cut_into_batches(seed: int) -> None:
    random = Random(seed)
    case, records = random_case(random), random_records(random, 30)
    ran = run(case, cut(random, records))
    reference, results = expected(case, records)
    made, wanted = [[r for batch in side for r in batch] for side in (ran.batches, results)]
    if case.final:
        assert made == wanted, (case, records)
    else:
        assert newest(made) == newest(wanted), (case, records)
    check_store(case, ran, reference)


@cases(0.5)
@given(st.integers(0, 10**9))
def test_sliding_windows_of_one_moment_have_the_records_of_that_moment(seed: int) -> None:
    """With a difference of 0, with each update or on close: as many as came in time."""
    random = Random(seed)
    grace, records = random.choice((0, 1, 4)), random_records(random, 30)
    wanted, now = Counter[tuple[str, int, int]](), -1
    for record in records:
        if record.key is not None and record.value is not None:
            now = max(now, record.ts)
            if record.ts >= now - grace:
                wanted[record.key, record.ts, record.ts] += 1
    closed = {window: count for window, count in wanted.items() if window[2] < now - grace}
    for final in (False, True):
        case = Case("sliding", "count", 0, grace, final=final)
        made = [result for batch in run(case, cut(random, records)).batches for result in batch]
        found = {window: row[0] for window, row in newest(made).items()}
        assert found == (closed if final else wanted), (case, records)
        assert not final or len(made) == len(found)


def check_store(case: Case, ran: Ran, reference: Windowing) -> None:
    rows = list(ran.rows)
    assert set(rows) <= set(shown(reference)), case
    open_ = [row for row in shown(reference) if is_open(case, reference, row[0])]
    assert [row for row in rows if row in open_] == open_, case
    assert rows == sorted(rows), case
    if case.kind == "sliding":
        oldest = reference.now - case.grace - 3 * case.size
        assert rows == [row for row in shown(reference) if row[0][1] >= oldest], case
    assert ran.dropped == reference.dropped, case
    assert ran.apart == reference.apart, case


def is_open(case: Case, reference: Windowing, window: tuple[str, int, int]) -> bool:
    end, now = window[2], reference.now - case.grace
    if case.kind == "session":
        return end > now - case.size
    return end > now if case.kind == "time" else end >= now
