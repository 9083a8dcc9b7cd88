"""A session whose JVM ends while it is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import crossstream as cs
from crossstream.spark.session import make_session


def test_a_jvm_that_ends_meanwhile_cannot_be_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)

    def refuse() -> Any:
        raise ConnectionRefusedError("nobody listens")

    def begin(builder: Any) -> Any:
        monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(stop=refuse))
        raise RuntimeError("no answer")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", begin)
    with pytest.raises(cs.ConfigError, match="no answer") as caught:
        make_session("app", {})
    assert caught.value.code == "CS-230"
