"""StreamsConfig: what it accepts, what it makes of it, and how it refuses the rest."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import timedelta
from pathlib import Path

import pytest

import crossstream as cs


def config(**settings):
    return cs.StreamsConfig(**{"application_id": "promo", **settings})


def refused(**settings):
    with pytest.raises(cs.ConfigError) as caught:
        config(**settings)
    error = caught.value
    assert error.next
    assert str(error.where["line"]).startswith(__file__)
    return error


def test_defaults_are_durable_and_strict():
    made = config()
    assert made.state_path == "./crossstream-state/promo"
    assert made.processing_guarantee == "at_least_once"
    assert made.deserialization_errors == made.processing_errors == made.on_lost_records == "fail"
    assert made.on_lost_state == "fail"
    assert (made.trigger_ms, made.partitions, made.max_records_per_batch) == (None, None, None)
    assert made.broker_patience_ms == 60_000
    assert made.retain_batches >= 1
    assert made.durable is True
    assert (made.servers, made.topics_path) == (None, None)


def test_values_are_normalised():
    made = config(
        bootstrap_servers=["a:1", "b:2"],
        trigger=timedelta(seconds=2),
        broker_patience="1 minute",
        state_dir=Path("/s"),
    )
    assert made.servers == "a:1,b:2"
    assert (made.trigger_ms, made.broker_patience_ms) == (2_000, 60_000)
    assert made.state_path == "/s"


def test_topics_are_in_a_folder_and_not_at_a_uri():
    error = refused(topics_dir="s3://key:secret@bucket/topics")
    assert error.code == "CS-201"
    assert "path of a folder" in error.next
    assert "secret" not in str(error)


@pytest.mark.parametrize("place", ["s3://bucket/state?region=x", "file:///srv/s"])
def test_state_may_be_at_a_uri(place):
    assert config(state_dir=place).state_path == place


@pytest.mark.parametrize("place", ["http://me:secret@host/state", "s4://bucket", Path("s3://bucket/state")])
def test_other_uris_are_refused(place):
    """Also one that was made a path: that has lost a slash."""
    error = refused(state_dir=place)
    assert error.code == "CS-201"
    assert "s3://" in error.next
    assert "secret" not in str(error)


def test_a_uri_is_shown_without_its_secrets():
    made = config(state_dir="s3://key:secret@bucket/state?region=eu", trigger="5 ms")
    assert "state_dir='s3://bucket/state'" in repr(made)
    assert "trigger='5 ms'" in repr(made)
    assert made.state_path == "s3://key:secret@bucket/state?region=eu"
    assert "state_dir='here'" in repr(config(state_dir="here"))


def test_it_is_a_value():
    made = config(kafka={"sasl.password": "secret"}, bootstrap_servers="a:1")
    assert dataclasses.replace(made, partitions=4).partitions == 4
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(config(bootstrap_servers="a:1"))
    assert "secret" not in repr(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.partitions = 3


def test_given_dicts_are_copied():
    settings = {"security.protocol": "SSL"}
    made = config(kafka=settings, bootstrap_servers="a:1")
    settings.clear()
    assert made.kafka == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("aplication_id", "application_id"),
        ("statedir", "state_dir"),
        ("bootstrap_server", "bootstrap_servers"),
        ("bootstrap.servers", "bootstrap_servers"),
        ("commit_interval_ms", "trigger"),
        ("commit.interval.ms", "trigger"),
        ("default_key_serde", "Consumed(key=…"),
        ("num_stream_threads", "partitions"),
        ("zzz", "StreamsConfig(application_id=…"),
    ],
)
def test_unknown_settings_name_the_right_one(setting, hint):
    error = refused(**{setting: 1})
    assert error.code == "CS-201"
    assert repr(setting) in error.what
    assert hint in error.next


def test_settings_are_keywords_and_the_id_is_required():
    with pytest.raises(cs.ConfigError, match="keyword arguments only"):
        cs.StreamsConfig("promo")
    with pytest.raises(cs.ConfigError, match="needs application_id"):
        cs.StreamsConfig()


@pytest.mark.parametrize("name", ["", ".", "..", "my app", "a/b", "ü", "x" * 250, None, 7])
def test_application_ids_follow_kafkas_rule(name):
    assert refused(application_id=name).code == "CS-201"


def test_topics_are_in_one_place():
    assert refused(bootstrap_servers="a:1", topics_dir="d").code == "CS-203"
    assert refused(kafka={"security.protocol": "SSL"}, topics_dir="d").code == "CS-203"
    assert config(topics_dir=Path("d")).topics_path == "d"


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 0},
        {"partitions": -1},
        {"partitions": 1.5},
        {"partitions": True},
        {"partitions": 65_537},
        {"max_records_per_batch": 0},
        {"retain_batches": 0},
        {"retain_batches": None},
        {"durable": "yes"},
        {"kafka": "x"},
        {"spark": ["x"]},
        {"bootstrap_servers": ""},
        {"bootstrap_servers": []},
        {"bootstrap_servers": 9092},
        {"state_dir": ""},
        {"topics_dir": 7},
    ],
)
def test_values_out_of_range(settings):
    assert refused(**settings).code == "CS-201"


def test_as_many_partitions_as_there_may_be():
    assert config(partitions=65_536).partitions == 65_536


@pytest.mark.parametrize(
    "settings",
    [
        {"processing_guarantee": "at_most_once"},
        {"deserialization_errors": "ignore"},
        {"processing_errors": None},
        {"on_lost_records": "dead letters"},
        {"on_lost_records": cs.DeadLetter("lost")},
        {"on_lost_state": "skip"},
        {"on_change": "restart"},
    ],
)
def test_values_that_are_no_choice(settings):
    assert refused(**settings).code == "CS-201"


def test_guarantees():
    assert config(processing_guarantee="exactly_once").processing_guarantee == "exactly_once"
    error = refused(processing_guarantee="exactly_once_v2")
    assert error.code == "CS-201"
    assert error.next == "choose 'at_least_once' or 'exactly_once'"


@pytest.mark.parametrize("name", ["bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset"])
def test_kafka_settings_of_our_own(name):
    assert refused(kafka={name: "x"}, bootstrap_servers="a:1").code == "CS-201"


@pytest.mark.parametrize("setting", ["trigger", "idle_after", "max_task_idle", "broker_patience"])
def test_a_small_number_does_not_say_its_unit(setting):
    error = refused(**{setting: 2})
    assert error.code == "CS-210"
    assert error.next == f'write {setting}="2 seconds" or {setting}="2 ms"'
    made = config(**{setting: "2 ms"})
    assert getattr(made, f"{setting}_ms") == 2
    assert getattr(dataclasses.replace(made, partitions=1), f"{setting}_ms") == 2
    assert getattr(config(**{setting: 60_000}), f"{setting}_ms") == 60_000


@pytest.mark.parametrize("trigger", ["soon", -1, 1.5])
def test_bad_durations(trigger):
    assert refused(trigger=trigger).code == "CS-210"
    assert refused(broker_patience=trigger).code == "CS-210"
    assert refused(broker_patience=0).code == "CS-210"


@pytest.mark.parametrize("name", ["kafka", "spark"])
def test_names_of_settings_are_text(name):
    error = refused(**{name: {"sasl.password": "secret", 3: "x"}})
    assert error.code == "CS-201"
    assert error.what == f"the name of a setting in {name}={{…}} cannot be 3"


def test_dead_letters():
    made = config(deserialization_errors=cs.DeadLetter("bad"), processing_errors=cs.DeadLetter(topic="worse"))
    assert made.deserialization_errors.topic == "bad"
    with pytest.raises(cs.ConfigError) as caught:
        cs.DeadLetter("not a topic")
    assert caught.value.code == "CS-201"
