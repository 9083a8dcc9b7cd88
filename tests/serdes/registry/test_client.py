"""The registry's client: settings, cache, patience, and what its refusals become."""

from __future__ import annotations

import base64
import builtins
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.registry import client as module
from crossstream.serdes.registry.client import RegistrySettings, connection, subject_name
from tests.serdes.registry.server import Registry, running

pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka.schema_registry import SchemaRegistryClient


@pytest.fixture
def server() -> Iterator[Registry]:
    with running() as registry:
        yield registry


def of(server: Registry, patience: str = "2 seconds", **more: Any) -> RegistrySettings:
    return RegistrySettings.of({"url": server.url, "patience": patience, **more})


def test_a_schema_is_asked_for_once(server: Registry) -> None:
    settings = of(server)
    id = connection(settings).register("a-value", "AVRO", '"int"')
    assert connection(settings).register("a-value", "AVRO", '"int"') == id == 1
    assert connection(settings).schema_of(id) == connection(settings).schema_of(id)
    assert connection(settings).latest("a-value") == (1, "AVRO", '"int"', ())
    assert server.asked.count("POST /subjects/a-value/versions") == 1
    assert "GET /schemas/ids/1" not in server.asked
    module._connection.cache_clear()
    assert (
        connection(settings).schema_of(id) == connection(settings).schema_of(id) == (1, "AVRO", '"int"', ())
    )
    assert server.asked.count("GET /schemas/ids/1") == 1


def test_a_connection_that_is_dropped_closes_its_client(server: Registry) -> None:
    made = module.Connection(of(server))
    session = made.client._rest_client.session
    assert not session.is_closed
    del made
    assert session.is_closed
    own = SchemaRegistryClient({"url": server.url})
    module.Connection(of(server)).use(own)
    assert not own._rest_client.session.is_closed
    own.__exit__()


def test_an_unknown_id_is_not_asked_for_again_at_once(server: Registry) -> None:
    for _ in range(3):
        with pytest.raises(cs.SerdeError, match="has no schema with id 7") as caught:
            connection(of(server)).schema_of(7)
        assert caught.value.code == "CS-402"
    assert server.asked == ["GET /schemas/ids/7"]


@pytest.mark.slow
def test_a_registry_that_is_away_is_waited_for(server: Registry) -> None:
    settings = of(server)
    connection(settings).register("a-value", "AVRO", '"int"')
    module._connection.cache_clear()
    server.answers = [(503, b"starting"), (500, {"error_code": 50003, "message": "no leader"}), (429, b"")]
    assert connection(settings).schema_of(1).text == '"int"'


@pytest.mark.slow
def test_one_that_stays_away_is_an_error_and_known_ids_go_on(server: Registry) -> None:
    orders = serdes.confluent_json({"url": server.url, "patience": "500 ms"}, dict[str, int])
    data = orders.written_to("orders", is_key=False).serialize({"id": 1})  # type: ignore[attr-defined]
    assert orders.deserialize(data) == {"id": 1}
    server.answers = [(503, b"")] * 20
    started = time.monotonic()
    with pytest.raises(cs.SerdeError, match=r"did not answer for 0\.5 s") as caught:
        orders.deserialize(b"\0\0\0\0\x09{}")
    assert caught.value.code == "CS-420"
    assert 0.2 < time.monotonic() - started < 5
    assert orders.deserialize(data) == {"id": 1}


def test_nobody_listens() -> None:
    settings = RegistrySettings.of({"url": "http://127.0.0.1:9", "patience": "200 ms"})
    with pytest.raises(cs.SerdeError, match="ConnectError") as caught:
        connection(settings).latest("a")
    assert caught.value.code == "CS-420"


@pytest.mark.slow
def test_a_slow_one_is_given_up(server: Registry) -> None:
    server.slow = 1.5
    started = time.monotonic()
    with pytest.raises(cs.SerdeError, match="did not answer"):
        connection(of(server, "300 ms", timeout=0.3)).latest("a")
    assert time.monotonic() - started < 1.4


@pytest.mark.slow
def test_the_application_stops_while_it_is_away_and_no_record_is_lost(server: Registry) -> None:
    orders = serdes.confluent_json({"url": server.url, "patience": "200 ms"}, dict[str, int])
    data = orders.written_to("orders", is_key=False).serialize({"id": 1})  # type: ignore[attr-defined]
    module._connection.cache_clear()
    builder = cs.StreamsBuilder()
    stream = builder.stream("orders", cs.Consumed(key=serdes.string(), value=orders))
    stream.map_values(len).to("out", cs.Produced(value=serdes.json()))
    server.answers = [(503, b"")] * 20
    with cs.TopologyTestDriver(builder.build(), deserialization_errors="skip") as driver:
        raw = driver.create_input_topic("orders", serdes.string(), serdes.bytes())
        with pytest.raises(cs.SerdeError) as caught:
            raw.pipe_input("a", data)
        assert caught.value.code == "CS-420"
        assert caught.value.where["topic"] == "orders"
        server.answers = []
        driver.commit()
        assert driver.create_output_topic("out", serdes.string(), serdes.json()).read_key_values() == [
            ("a", 1)
        ]
        assert driver.metrics()["dropped"] == {}


def test_a_sink_whose_schema_is_refused_stops_once(server: Registry) -> None:
    orders = serdes.confluent_json({"url": server.url, "patience": "200 ms"}, dict[str, int])
    builder = cs.StreamsBuilder()
    builder.stream("orders", cs.Consumed(key=serdes.string(), value=serdes.json(dict[str, int]))).to(
        "out", cs.Produced(value=orders)
    )
    server.answers = [(409, {"error_code": 409, "message": "incompatible"})]
    with cs.TopologyTestDriver(builder.build(), processing_errors="skip") as driver:
        topic = driver.create_input_topic("orders", serdes.string(), serdes.json())
        with pytest.raises(cs.SerdeError) as caught:
            topic.pipe_input("a", {"id": 1})
        assert caught.value.code == "CS-421"
        assert server.asked == ["POST /subjects/out-value/versions"]


def test_credentials(server: Registry) -> None:
    server.password = "Basic " + base64.b64encode(b"ada:secret").decode()
    with pytest.raises(cs.SerdeError, match=r"refused to answer \(HTTP 401\)") as caught:
        connection(of(server)).latest("a")
    assert caught.value.code == "CS-420"
    assert "basic.auth.user.info" in str(caught.value)
    settings = of(server, **{"basic.auth.user.info": "ada:secret"})
    assert connection(settings).register("a-value", "AVRO", '"int"') == 1
    assert "secret" not in repr(settings) + str(settings)


def test_an_incompatible_schema_says_what_differs(server: Registry) -> None:
    message = (
        'Schema being registered is incompatible with an earlier schema for subject "a-value", details: '
        "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'b'}, {oldSchemaVersion: 1}, "
        "{oldSchema: '{...}'}, {validateFields: 'false'}]"
    )
    server.answers = [(409, {"error_code": 409, "message": message})]
    with pytest.raises(cs.SerdeError) as caught:
        connection(of(server)).register("a-value", "AVRO", '"int"')
    assert caught.value.code == "CS-421"
    assert caught.value.what == (
        "the schema is incompatible with those of subject a-value: The field 'b' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema"
    )


@pytest.mark.slow
def test_tasks_that_register_a_schema_at_the_same_time_both_get_its_id(server: Registry) -> None:
    """Apicurio refuses the second one, though the schema is the same."""
    message = "An artifact with ID 'a-value' in group 'null' already exists."
    server.answers = [(409, {"error_code": 409, "message": message})] * 2
    assert connection(of(server)).register("a-value", "AVRO", '"int"') == 1
    module._connection.cache_clear()
    server.answers = [(409, {"error_code": 409, "message": message})] * 100
    with pytest.raises(cs.SerdeError, match="already exists") as caught:
        connection(of(server, patience="300 ms")).register("b-value", "AVRO", '"int"')
    assert caught.value.code == "CS-420"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((409, {"error_code": 409, "message": "they differ"}), "CS-421", "incompatible .*: they differ"),
        ((422, {"error_code": 42201, "message": "not Avro"}), "CS-421", "refused the schema .*: not Avro"),
        ((403, {"error_code": 40301, "message": "no right"}), "CS-420", r"HTTP 403\): no right"),
        ((418, b"<html>"), "CS-420", "HTTP 418"),
    ],
)
def test_refusals(server: Registry, answer: tuple[int, Any], code: str, said: str) -> None:
    server.answers = [answer]
    with pytest.raises(cs.SerdeError, match=said) as caught:
        connection(of(server)).register("a-value", "AVRO", '"int"')
    assert caught.value.code == code


def test_without_registration_a_schema_must_be_there(server: Registry) -> None:
    with pytest.raises(cs.SerdeError, match="is not registered under subject a-value") as caught:
        connection(of(server)).register("a-value", "AVRO", '"int"', auto_register=False)
    assert caught.value.code == "CS-421"
    connection(of(server)).register("a-value", "AVRO", '"int"')
    assert connection(of(server)).register("a-value", "AVRO", '"int"', auto_register=False) == 1


def test_a_subject_that_does_not_exist(server: Registry) -> None:
    with pytest.raises(
        cs.SerdeError, match=r"no schema under subject nothing: Subject 'nothing' not found"
    ) as caught:
        connection(of(server)).latest("nothing")
    assert caught.value.code == "CS-421"


def test_references_are_registered_first_and_read_with_the_schema(server: Registry) -> None:
    inner = module.Reference("b", '"string"')
    id = connection(of(server)).register(
        "a-value", "AVRO", '"b"', [module.Reference("c", '"int"', (inner,)), inner]
    )
    written = connection(of(server)).schema_of(id)
    assert written.references == (("b", '"string"'), ("c", '"int"'))
    module._connection.cache_clear()
    assert connection(of(server)).schema_of(id) == written


def test_settings() -> None:
    one = RegistrySettings.of("http://ada:secret@host:1/path")
    assert one.url == "http://host:1/path"
    assert "secret" not in repr(one)
    assert (
        one
        == RegistrySettings.of({"url": "http://ada:secret@host:1/path"})
        == pickle.loads(pickle.dumps(one))
    )
    assert one != RegistrySettings.of("http://ada:other@host:1/path")
    client = SchemaRegistryClient.new_client({"url": "mock://settings"})
    assert connection(RegistrySettings.of(client)).client is client


@pytest.mark.parametrize("wrong", [7, None, "", "host:8081", {}, {"url": 7}, {"url": "http://a", "b": 1}])
def test_what_is_no_registry(wrong: Any) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        serdes.confluent_json(wrong, int)
    assert caught.value.code == "CS-201"


def test_the_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if name == "confluent_kafka" and "schema_registry" in (fromlist or ()):
            raise ImportError("No module named 'httpx'")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(cs.ConfigError, match="packages that are not installed") as caught:
        serdes.confluent_json("mock://a", int)
    assert caught.value.next == 'pip install "crossstream[registry]"'


def test_subject_names() -> None:
    assert subject_name("topic", "orders", True, None) == "orders-key"
    assert subject_name("topic", "orders", False, None) == "orders-value"
    assert subject_name("record", None, False, "shop.Order") == "shop.Order"
    assert subject_name("topic-record", "orders", False, "shop.Order") == "orders-shop.Order"
    for strategy, topic, name in (
        ("topic", None, "a"),
        ("record", "a", None),
        ("topic-record", None, "a"),
        ("x", "a", "a"),
    ):
        with pytest.raises(cs.SerdeError, match="no subject for a schema") as caught:
            subject_name(strategy, topic, False, name)  # type: ignore[arg-type]
        assert caught.value.code == "CS-404"


def test_a_topic_that_a_function_names_needs_a_subject() -> None:
    orders = serdes.confluent_json("mock://dynamic", dict[str, int])
    stream = cs.StreamsBuilder().stream("orders", cs.Consumed(key=serdes.string(), value=orders))
    with pytest.raises(cs.SerdeError, match="a function or a pattern names it"):
        stream.to(lambda key, value: "a")
    stream.to(
        lambda key, value: "a", cs.Produced(value=serdes.confluent_json("mock://dynamic", subject="mine"))
    )
