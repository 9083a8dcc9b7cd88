"""Damaged payloads in a topic: each comes out right, or is counted and a dead letter; no neighbour is lost."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.registry.client import RegistrySettings, connection
from tests.serdes.avro.schemas import comparable, read, text
from tests.serdes.avro.schemas import write as written
from tests.serdes.avro.test_damaged import NESTED, ORDER, _basket, _damage, _order

RAW = serdes.bytes()
OLDER = {**ORDER, "fields": [one for one in ORDER["fields"] if one["name"] != "open"]}
NEWER = {
    **ORDER,
    "fields": [{**one, "default": True} if one["name"] == "open" else one for one in ORDER["fields"]],
}
UNKNOWN = b"\0\0\0\x27\x0f"
"""A frame with an id that the registry does not know."""


def _expected(ids: dict[int, Any], schema: Any, data: bytes) -> Any:
    """What fastavro reads; an exception if it cannot."""
    writer = ids.get(int.from_bytes(data[1:5], "big"), schema)  # 0: the declared one
    return read(writer, data[5:], None if writer == schema else schema)


def _check(schema: Any, older: Any, make: Any, rows: int, batches: int, seed: int) -> int:
    """Half of the records are damaged, frames as well as payloads. Returns how many."""
    registry, rng = f"mock://{uuid4()}", random.Random(seed)
    settings = RegistrySettings.of(registry)
    ids = {
        connection(settings).register(f"of-{at}", "AVRO", text(one)): one
        for at, one in enumerate([schema, older])
    }
    builder = cs.StreamsBuilder()
    value = serdes.confluent_avro(registry, schema)
    source = builder.stream("orders", cs.Consumed(key=serdes.string(), value=value))
    source.map_values(lambda row: row).to("copies", cs.Produced(key=serdes.string(), value=value))
    damaged = lost = 0
    with cs.TopologyTestDriver(
        builder.build(), deserialization_errors=cs.DeadLetter("letters"), commit_every=rows
    ) as driver:
        into = driver.create_input_topic("orders", RAW, RAW)
        copies = driver.create_output_topic("copies", serdes.string(), value)
        letters = driver.create_output_topic("letters", RAW, RAW)
        for batch in range(batches):
            sent: dict[str, tuple[bytes, bool]] = {}
            good = []
            for _ in range(rows):
                id = rng.choice(list(ids))
                good.append(b"\0" + id.to_bytes(4, "big") + written(ids[id], make(rng)))
            for at, data in enumerate(good):
                is_damaged = rng.random() < 0.5
                if is_damaged:
                    lot = rng.random()
                    data = (
                        UNKNOWN + data[5:]
                        if lot < 0.01
                        else _damage(rng, data, rng.choice(good))
                        if lot < 0.2
                        else data[:5] + _damage(rng, data[5:], rng.choice(good)[5:])
                    )
                    damaged += 1
                sent[f"{batch}-{at}"] = data, is_damaged
            into.pipe_records([(key.encode(), data, 0) for key, (data, _) in sent.items()])
            driver.commit()
            found, dead = dict(copies.read_key_values()), dict(letters.read_key_values())
            refused = {key.decode(): data for key, data in dead.items()}
            assert found.keys() | refused.keys() == sent.keys()
            assert len(found) + len(refused) == rows
            for key, data in refused.items():
                assert sent[key] == (data, True)
            for key, made in found.items():
                assert comparable(made) == comparable(_expected(ids, schema, sent[key][0])), sent[key]
            assert len(refused) > rows / 10
            lost += len(refused)
        assert sum(driver.metrics()["dropped"].values()) == lost, driver.metrics()
    return damaged


def test_damaged_records() -> None:
    assert _check(NEWER, OLDER, _order, 2_000, 1, seed=1) > 900
    assert _check(NESTED, NESTED, _basket, 1_000, 1, seed=2) > 400


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_200_000_damaged_records() -> None:
    """Batches of 20,000 records."""
    damaged = _check(NEWER, OLDER, _order, 20_000, 14, seed=3)
    damaged += _check(NESTED, NESTED, _basket, 20_000, 7, seed=4)
    assert damaged > 200_000
