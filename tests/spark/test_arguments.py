"""What `SparkStreams` is made with, looked at before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream.spark.session import make_session
from tests.api.cases import JSON

CONFIG = cs.StreamsConfig(application_id="promo")


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("in", JSON).to("out")
    return builder.build()


def refused(code: str, *words: str, **given: Any) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        cs.SparkStreams(**{"topology": topology(), "config": CONFIG, **given})
    error = caught.value
    assert error.code == code, str(error)
    assert str(error.where["line"]).startswith(__file__)
    assert error.next
    for word in words:
        assert word in str(error)


def test_an_application_runs_a_topology() -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in", JSON).to("out")
    refused("CS-201", "StreamsBuilder", "builder.build()", topology=builder)
    refused("CS-201", "builder.build()", topology=builder.build)
    refused("CS-201", "first: SparkStreams(builder.build(), …)", topology=CONFIG, config=topology())
    refused("CS-201", "NoneType", topology=None)


def test_an_application_has_a_configuration() -> None:
    refused("CS-201", "dict", "StreamsConfig(**…)", config={"application_id": "promo"})
    refused("CS-201", "str", "StreamsConfig(application_id=", config="promo")
    refused("CS-201", "NoneType", config=None)


def test_a_session_is_told_what_it_is() -> None:
    refused("CS-232", "a str is not a Spark session", 'spark={"spark.master": "local[1]"}', spark="local[1]")
    refused("CS-232", "a dict is not a Spark session", spark={"spark.master": "local[1]"})
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    refused("CS-232", "Spark Connect", spark=remote)


def test_whoever_listens_to_progress_is_a_function() -> None:
    async def listener(progress: Any) -> None: ...

    app = cs.SparkStreams(topology(), CONFIG)
    for given, word in ((None, "None"), (listener, "async def"), (lambda: None, "(progress)")):
        with pytest.raises(cs.ConfigError) as caught:
            app.on_progress(given)  # type: ignore[arg-type]
        assert caught.value.code == "CS-201"
        assert word in str(caught.value)
        assert caught.value.next


@pytest.mark.parametrize("timeout", ["x", "", True, float("nan"), []])
def test_what_an_application_is_waited_for_is_a_duration(timeout: Any) -> None:
    with pytest.raises(cs.ConfigError, match="timeout is not a duration") as caught:
        cs.SparkStreams(topology(), CONFIG).await_termination(timeout)
    assert caught.value.code == "CS-210"
    assert str(caught.value.where["line"]).startswith(__file__)
    assert "a number of seconds" in str(caught.value.next)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("[JAVA_GATEWAY_EXITED] Java exited.\nmore", "[JAVA_GATEWAY_EXITED] Java exited."),
        (
            "An error occurred while calling None.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'foo'\n\tat org",
            "org.apache.spark.SparkException: Could not parse Master URL: 'foo'",
        ),
        ("", "RuntimeError"),
    ],
)
def test_spark_that_does_not_start_names_reason_and_master(
    monkeypatch: pytest.MonkeyPatch, said: str, what: str
) -> None:
    def fail(builder: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", fail)
    with pytest.raises(cs.ConfigError) as caught:
        make_session("app", {"spark.master": "foo"})
    assert (caught.value.code, caught.value.what) == ("CS-230", f"Spark did not start: {what}")
    assert caught.value.where == {"spark.master": "foo"}
    assert str(caught.value.next).startswith("check spark.master, and run `crossstream doctor`")
    with pytest.raises(cs.ConfigError) as caught:
        make_session("app", {})
    assert "spark.master" not in str(caught.value)
