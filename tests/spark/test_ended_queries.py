"""What is said where the query of DataFrame sources ends by an error of Delta's source; doubles stand for the query."""

from __future__ import annotations

from typing import Any

import pytest

from crossstream.errors import SourceError
from crossstream.spark.feed import FrameFeed

UPDATED = (
    "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example UPDATE) in the source table at version 3. "
    "If this is going to happen regularly and you are okay to skip changes, set 'skipChangeCommits' to 'true'."
)
NO_FEED = (
    "[DELTA_MISSING_CHANGE_DATA] Error getting change data for range [0, 2] as it was not recorded for version [0]. "
    "If you've enabled change data feed on this table, use `DESCRIBE HISTORY`: `delta.enableChangeDataFeed=true`."
)


class Query:
    """A query that has ended with an error."""

    isActive = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def exception(self) -> Exception:
        return self.error

    def awaitTermination(self) -> None:
        raise self.error


def ended(error: Exception) -> FrameFeed:
    feed = FrameFeed(lambda frame, epoch: None)
    feed._query = Query(error)
    return feed


def check(feed: FrameFeed) -> None:
    feed.check()


def wait(feed: FrameFeed) -> None:
    feed._await()


@pytest.mark.parametrize("notice", [check, wait])
@pytest.mark.parametrize(
    ("message", "step"), [(UPDATED, "readChangeFeed"), (NO_FEED, "begin after that version")]
)
def test_the_next_step_is_that_of_the_table(notice: Any, message: str, step: str) -> None:
    with pytest.raises(SourceError) as caught:
        notice(ended(RuntimeError(message)))
    assert caught.value.code == "CS-619"
    assert message in caught.value.what
    assert caught.value.next is not None
    assert step in caught.value.next
    assert "builder.table_from_delta(" in caught.value.next


def test_other_errors_are_those_of_spark() -> None:
    with pytest.raises(SourceError, match="start the application again"):
        ended(RuntimeError("no such file")).check()
    with pytest.raises(RuntimeError, match="no such file"):
        ended(RuntimeError("no such file"))._await()
