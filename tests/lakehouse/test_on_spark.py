"""Tables that an application on Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from tests.lakehouse.lake import FORMATS
from tests.lakehouse.test_each_batch_once import Lives

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("form", FORMATS)
def test_an_application_on_spark(spark: Any, tmp_path: Path, form: Any) -> None:
    lives = Lives(tmp_path, form)
    for words in (("a", "b", "a"), ("a", "c")):
        lives.append(*words)
        with cs.SparkStreams(lives.topology(), lives.world.config(), spark) as app:
            app.process_available()
    assert lives.events() == ["a", "a", "a", "b", "c"]
    assert lives.counts() == {"a": 3, "b": 1, "c": 1}
