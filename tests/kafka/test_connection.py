"""The description of a cluster: checked, picklable, and nothing opened."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from crossstream.durations import LONGEST
from crossstream.errors import ConfigError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.client import Complaints, open_producer
from crossstream.kafka.settings import RESERVED


def test_it_is_a_value() -> None:
    connection = KafkaConnection("a:1,b:2", {"sasl.password": "secret"}, 5.0)
    assert pickle.loads(pickle.dumps(connection)) == connection
    assert hash(pickle.loads(pickle.dumps(connection))) == hash(connection)
    assert "secret" not in repr(connection)


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_settings_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be set") as caught:
        KafkaConnection("a:1", {name: "x"})
    assert caught.value.code == "CS-201"


@pytest.mark.parametrize(
    ("servers", "patience"), [("", 60.0), (" ", 60.0), ("a:1", 0.0), ("a:1", float("nan"))]
)
def test_servers_and_patience_are_needed(servers: str, patience: float) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaConnection(servers, patience_seconds=patience)
    assert caught.value.code == "CS-201"


def test_settings_the_client_does_not_know_are_refused() -> None:
    for setting in ({"ssl.truststore.location": "x"}, {"linger.ms": "soon"}, {"ssl.ca.location": "/no/such"}):
        with pytest.raises(ConfigError, match="does not accept its settings") as caught:
            KafkaConnection("a:1", {"security.protocol": "SSL", **setting}).log().topics()
        assert caught.value.code == "CS-201"


@pytest.mark.parametrize("patience", [LONGEST / 1000, float("inf")])
def test_patience_may_have_no_end(patience: float) -> None:
    connection = KafkaConnection("127.0.0.1:1", patience_seconds=patience)
    open_producer(connection, Complaints())  # the client takes it


def test_importing_opens_and_imports_no_client() -> None:
    code = "import sys, crossstream.kafka, crossstream.dev.broker; sys.exit('confluent_kafka' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
    )
