"""What mistakes of somebody who comes from Spark are answered with, where it takes a session to make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.answers import answer
from tests.golden.spark_mistakes import ON_SPARK, Lake
from tests.golden.test_spark_mistakes import ANSWERS

pytestmark = [pytest.mark.spark]


@pytest.mark.parametrize("name", ON_SPARK)
def test_a_mistake_is_answered(name: str, spark: Any, tmp_path: Path) -> None:
    text, _ = answer(lambda: ON_SPARK[name](Lake(tmp_path), spark), tmp_path)
    ANSWERS.check(name, text)
