"""Which batch is asked for: by its number, or by a place in the log of the database that its tables are of."""

from __future__ import annotations

import re

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Commit, lsn_text

_LSN = re.compile(
    r"lsn:(?:(?P<high>[0-9A-Fa-f]{1,8})/(?P<low>[0-9A-Fa-f]{1,8})|(?P<whole>[0-9]{1,19}))(?:@(?P<topic>.+))?"
)


def batch_at(log: BatchLog, as_of: int | str | None) -> int | None:
    """The number of the batch; None: the newest one.

    A text is a place as Postgres writes it, or as a number: "lsn:0/16B3748", "lsn:23803720"; with several databases
    "lsn:0/16B3748@shop.transaction". It is the last batch that is kept and stands at that place or before it. Raises
    `StateError` CS-713 if there is none.
    """
    if not isinstance(as_of, str) or not as_of.startswith("lsn:"):
        return as_of  # type: ignore[return-value]  # what is no batch is refused where it is looked for
    found = _LSN.fullmatch(as_of)
    if found is None:
        step = 'pass a place in the log of the database, as "lsn:0/16B3748"'
        raise refuse("CS-713", f"{as_of!r} is no such place", step, folder=str(log.root))
    whole = found["whole"]
    lsn = int(whole) if whole else (int(found["high"], 16) << 32) + int(found["low"], 16)
    kept = log.commits()
    for number in reversed(kept):
        try:
            commit = log.commit(number)
        except FileNotFoundError:  # retired meanwhile, and so are those before it
            break
        place = _lsn_of(log, commit, found["topic"])
        if place is not None and place <= lsn:
            return number
    raise _none_at(log, kept, lsn)


def _lsn_of(log: BatchLog, commit: Commit, topic: str | None) -> int | None:
    """Where a batch stands; None: it is not known."""
    places = {name: one.lsn for name, one in commit.stands.items() if one.lsn is not None}
    if topic is None and len(places) > 1:
        step = f'name one, as "lsn:…@{min(places)}"'
        what = f"the state stands in {len(places)} databases: {', '.join(sorted(places))}"
        raise refuse("CS-713", what, step, folder=str(log.root))
    return next(iter(places.values()), None) if topic is None else places.get(topic)


def _none_at(log: BatchLog, kept: list[int], lsn: int) -> CrossStreamError:
    what = f"no batch that is kept stands at {lsn_text(lsn)} or before it"
    step = f"kept are batches {kept[0]} to {kept[-1]}" if kept else "no batch has been committed yet"
    return refuse("CS-713", what, step, folder=str(log.root))
