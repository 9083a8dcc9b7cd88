"""The law over compositions: random graphs of every kind of operator give what their records give one by one.

In any cut into batches, on any number of state partitions, each function a callable, an expression or the name of a
field, with and without stores and declared types. What is right says the reference, which is plain Python; where it
does not (the order in which one record comes to an operator on several ways), the driver itself with callables,
without stores, in one partition, one record in a batch.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.compositions.drawing import case
from tests.laws.compositions.graphs import Case
from tests.laws.compositions.running import check, check_with_itself
from tests.laws.effort import cases


def cases_of(random: Random) -> Case:
    return case(random)


compositions = st.randoms(use_true_random=False).map(cases_of)


@cases(10)
@given(compositions)
def test_compositions(case: Case) -> None:
    check(case)


@cases(1)
@given(compositions)
def test_compositions_beside_themselves(case: Case) -> None:
    check_with_itself(case)
