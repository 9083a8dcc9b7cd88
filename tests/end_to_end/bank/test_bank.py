"""Every batch is a state that a real Postgres had: no sum of the bank is ever anything but zero, whatever is killed.

16 writers, four tables, Debezium with events of transactions, joins by foreign keys and totals. Readers of committed
records, of every version of Delta tables and of stores look at each batch; each version has what SQL showed at the
place in the log that it names. BANK_TRANSACTIONS=1000000 and BANK_KILLS=200 make the long form longer.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from crossstream.dev.cdc import Parts
from tests.end_to_end.bank.database import WRITERS, Bank
from tests.end_to_end.bank.play import VICTIMS, Outcome, Play

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TRANSACTIONS = int(os.environ.get("BANK_TRANSACTIONS", "200000"))
KILLS = int(os.environ.get("BANK_KILLS", "50"))
PAUSE = float(os.environ.get("BANK_PAUSE", "0.08"))
"""Seconds between the transactions of a writer in the long form: the kills should fit in."""


def check(outcome: Outcome, kills: int) -> None:
    print(outcome, flush=True)
    assert outcome.seen.faults == {}, outcome.seen.wrong
    assert sum(outcome.kills.values()) == kills
    ways = {way.partition(" ")[0] for way in outcome.seen.checked}
    assert ways == {"topic", "lake", "store", "sample"}
    assert outcome.seen.checked["lake accounts at its place"] >= kills


def test_every_batch_is_a_state_that_the_database_had(parts: Parts, tmp_path: Path) -> None:
    play = Play(parts, Bank(parts.postgres, "bank"), tmp_path, Random(1))
    check(play.run(VICTIMS, every=0.5, pause=0.5), len(VICTIMS))


def test_without_whole_transactions_sums_are_not_zero(parts: Parts, tmp_path: Path) -> None:
    """The test bites: the same application without ``transactions=`` shows halves of transfers."""
    play = Play(parts, Bank(parts.postgres, "halves"), tmp_path, Random(1), whole=False)
    outcome = play.until_wrong(pause=0.2)
    assert {way.partition(" ")[0] for way in outcome.seen.faults} == {"store"}


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_200_000_transactions_and_50_kills(parts: Parts, tmp_path: Path, fresh: int) -> None:
    rng = Random(fresh)
    victims = [rng.choice(VICTIMS) for _ in range(KILLS)]
    play = Play(parts, Bank(parts.postgres, "long"), tmp_path, rng, records=10_000)
    outcome = play.run(victims, every=1, pause=PAUSE, transactions=TRANSACTIONS // WRITERS + 1)
    check(outcome, KILLS)
