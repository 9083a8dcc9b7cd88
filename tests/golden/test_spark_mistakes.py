"""What the mistakes of somebody who comes from Spark are answered with, and how soon.

``UPDATE_GOLDEN=1`` writes the texts; read them again. Those that need Spark: `tests/spark/test_mistakes.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.answers import SECONDS, Answers, answer
from tests.golden.spark_mistakes import ON_SPARK, WITHOUT_SPARK, Lake

ANSWERS = Answers(Path(__file__).parent / "spark_mistakes.txt", [*WITHOUT_SPARK, *ON_SPARK])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.chdir(tmp_path)
    return Lake(tmp_path)


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_a_mistake_is_answered_at_once(name: str, lake: Lake) -> None:
    text, seconds = answer(lambda: WITHOUT_SPARK[name](lake), lake.folder)
    ANSWERS.check(name, text)
    if seconds.cpu >= SECONDS:  # the first one that needs PySpark imports it
        _, seconds = answer(lambda: WITHOUT_SPARK[name](lake), lake.folder)
    assert seconds.cpu < SECONDS
    assert seconds.wall < 10 * SECONDS


def test_every_text_is_of_a_mistake() -> None:
    assert list(ANSWERS.pinned()) == [*WITHOUT_SPARK, *ON_SPARK]
    assert len(WITHOUT_SPARK) >= 70
