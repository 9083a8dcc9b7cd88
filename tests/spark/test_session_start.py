"""A session whose JVM ends while it is made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import crossstream as cs
from crossstream.jvm import archive_of_classes
from crossstream.spark.session import make_session


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path))


@pytest.mark.parametrize(("gateway", "stays"), [(None, False), (object(), True)])
def test_where_no_jvm_starts_the_archive_of_classes_is_removed(
    gateway: object, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be damaged. A wrong master, which the JVM has refused, is no reason."""
    archive = archive_of_classes()
    assert archive is not None
    archive.touch()
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)

    def fail(builder: Any) -> Any:
        raise RuntimeError("Java gateway process exited")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(cs.ConfigError, match="Java gateway process exited"):
        make_session("app", {})
    assert archive.exists() == stays


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
