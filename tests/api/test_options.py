"""Option objects: frozen, keyword arguments, checked when made."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.api.cases import refused

OPTIONS = [cs.Consumed, cs.Produced, cs.Materialized, cs.Repartitioned, cs.TableJoined]


@pytest.mark.parametrize("option", [*OPTIONS, cs.Named])
def test_options_are_frozen_values(option):
    make = {"name": "n"} if option is cs.Named else {}
    assert option(**make) == option(**make)
    assert hash(option(**make)) == hash(option(**make))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(option(**make), dataclasses.fields(option)[0].name, None)


@pytest.mark.parametrize("option", OPTIONS)
def test_unknown_and_positional_settings_are_refused(option):
    refused("CS-101", lambda: option(nmae="x"), option.__name__, "nmae")
    refused("CS-101", lambda: option("x"), "keyword arguments only")


def test_a_close_setting_is_named():
    refused("CS-101", lambda: cs.Consumed(kye=serdes.string()), "did you mean key?")
    refused("CS-101", lambda: cs.Materialized(stor="x"), "did you mean store")
    refused("CS-101", lambda: cs.Named(), "Named needs name")
    assert cs.Named("x") == cs.Named(name="x")


@pytest.mark.parametrize("name", ["", ".", "..", "my orders", "a/b", "größe", "x" * 250, 7, "a\n"])
def test_names_follow_kafkas_rule(name):
    refused("CS-102", lambda: cs.Named(name))
    refused("CS-102", lambda: cs.Consumed(name=name))
    refused("CS-102", lambda: cs.Produced(name=name))
    refused("CS-102", lambda: cs.Materialized(store=name))
    refused("CS-102", lambda: cs.Repartitioned(name=name))
    refused("CS-102", lambda: cs.TableJoined(name=name))


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "..."])
def test_names_that_kafka_takes(name):
    assert cs.Named(name).name == name


@pytest.mark.parametrize("option", [cs.Consumed, cs.Produced, cs.Materialized, cs.Repartitioned])
def test_serdes_are_checked(option):
    refused("CS-101", lambda: option(key="string"), option.__name__, "is not a serde")
    refused("CS-101", lambda: option(value=object), "or a type: str, bytes, int, float, bool, UUID, dict")
    refused("CS-101", lambda: option(value=serdes.json), "call it: value=serdes.json()")


def test_choices_are_checked():
    for wrong in ("newest", 7, True, None, 1.5, ""):
        refused("CS-101", lambda wrong=wrong: cs.Consumed(offset_reset=wrong), "'earliest' or 'latest'")
    refused("CS-110", lambda: cs.Consumed(offset_reset="-1 hour"), "at least 0 ms")
    refused("CS-110", lambda: cs.Consumed(offset_reset=timedelta(microseconds=1)), "finer")
    assert cs.Consumed(offset_reset="1 hour") == cs.Consumed(offset_reset=timedelta(hours=1))
    utc = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
    elsewhere = utc.astimezone(timezone(timedelta(hours=5)))
    for same in (datetime(2026, 1, 2, 3), elsewhere):
        assert cs.Consumed(offset_reset=same) == cs.Consumed(offset_reset=utc)
    refused("CS-101", lambda: cs.Materialized(caching="yes"))
    for wrong in ("last", True, 1, ""):
        refused("CS-101", lambda wrong=wrong: cs.Consumed(load=wrong), "choose None or 'first'")
    for partitions in (0, -1, 1.5, True, "3"):
        refused("CS-101", lambda n=partitions: cs.Repartitioned(partitions=n))


def test_functions_must_fit_their_call():
    refused("CS-104", lambda: cs.Produced(partitioner=lambda key, count: 0), "(topic, key, value, count)")
    refused("CS-104", lambda: cs.Repartitioned(partitioner=lambda key: 0), "(key, count)")
    refused("CS-104", lambda: cs.TableJoined(other_partitioner=lambda topic, key, value, count: 0))
    refused("CS-104", lambda: cs.TableJoined(partitioner=7), "is not callable")
    refused("CS-104", lambda: cs.Consumed(timestamp_extractor=lambda value: 0), "(key, value, timestamp)")
    assert cs.Consumed(timestamp_extractor=pl.col("at")).timestamp_extractor is not None
    assert cs.Produced(partitioner=lambda *args: 0).partitioner is not None
